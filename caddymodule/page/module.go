package page

import (
	"net/http"
	"path"
	"sync"
)

// modules are the files of client.js. Unlike the files of the page, their addresses
// contain no version and never change. They are built at first use, since
// compressing them takes time that commands and hashing processes should not spend.
var modules = map[string]func() *file{"client.js": module("client.js"), "client.d.ts": module("client.d.ts")}

// ServeModule answers with client.js or its types. It ignores the path before the
// file name. The files are the same for everyone and contain no secret.
func ServeModule(w http.ResponseWriter, r *http.Request, name string) {
	modules[path.Base(name)]().serve(w, r, "no-cache")
}

func module(name string) func() *file {
	return sync.OnceValue(func() *file {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the build fails if an embedded file is missing
		}
		return newFile(contentTypes[path.Ext(name)], content)
	})
}
