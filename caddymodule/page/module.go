// Package page is what browsers load: the module client.js, as it is served.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"strings"
)

//go:embed assets/client.js assets/client.d.ts
var moduleFiles embed.FS

// ServeModule answers with client.js or its types, whatever stands before their name
// in the path. They are the same for everyone and hold no secret.
func ServeModule(w http.ResponseWriter, r *http.Request, name string) {
	f := modules[path.Base(name)]
	header := w.Header()
	header.Set("Content-Type", f.contentType)
	header.Set("Cache-Control", "no-cache") // its address stays, its content is the server's
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("ETag", f.etag)
	header.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	content := f.plain
	if strings.Contains(strings.Join(r.Header["Accept-Encoding"], ","), "gzip") {
		header.Set("Content-Encoding", "gzip")
		content = f.gzipped
	}
	_, _ = w.Write(content) // the client may be gone
}

type moduleFile struct {
	contentType, etag string
	plain, gzipped    []byte
}

var modules = map[string]moduleFile{
	"client.js":   newModuleFile("client.js", "text/javascript; charset=utf-8"),
	"client.d.ts": newModuleFile("client.d.ts", "text/plain; charset=utf-8"),
}

func newModuleFile(name, contentType string) moduleFile {
	content, err := moduleFiles.ReadFile("assets/" + name)
	if err != nil {
		panic(err) // embed has refused to build
	}
	hash := sha256.Sum256(content)
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // a level that there is
	_, _ = w.Write(content)                               // a buffer takes all
	_ = w.Close()
	etag := `W/"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"` // gzipped or not
	return moduleFile{contentType, etag, content, b.Bytes()}
}
