package page

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// The operator's style sheet may use files next to it, such as fonts. They are found
// in its url(…), read when the configuration is loaded, and served next to it. So the
// page needs no other server and its policy no exception.

const (
	styleDir   = "style/" // in the path of the style sheet and its files
	styleName  = styleDir + "style.css"
	maxStyle   = 256 << 10
	maxFile    = 1 << 20
	maxOfStyle = 32 // files
)

var (
	cssComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cssURL     = regexp.MustCompile(`(?i)url\(\s*(?:"([^"]*)"|'([^']*)'|([^"')\s]*))`)
	cssImport  = regexp.MustCompile(`(?i)@import\b|\bimage-set\(\s*["']|\bsrc\(`)
	plainFile  = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$`)
)

// styleTypes are the types of files that a style sheet may use.
var styleTypes = map[string]string{
	".woff2": "font/woff2",
	".woff":  "font/woff",
	".ttf":   "font/ttf",
	".otf":   "font/otf",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".jpg":   "image/jpeg",
	".jpeg":  "image/jpeg",
	".webp":  "image/webp",
	".avif":  "image/avif",
	".gif":   "image/gif",
}

// readStyle reads the operator's style sheet and the files that it uses.
func (p *Page) readStyle(name string) error {
	if name == "" {
		return nil
	}
	sheet, err := guest.ReadFile(name)
	if err != nil {
		return fmt.Errorf("style: %w", err)
	}
	if len(sheet) > maxStyle || bytes.IndexByte(sheet, 0) >= 0 {
		return fmt.Errorf("style: %s is not a text file of at most %d kB; make it smaller, or name a style sheet", name, maxStyle>>10)
	}
	bare := cssComment.ReplaceAll(sheet, nil)
	if found := cssImport.Find(bare); found != nil {
		return fmt.Errorf("style: %s has %s, which the page can't follow; write the rules into this file, and files as url(name)", name, found)
	}
	used := 0
	for _, found := range cssURL.FindAllSubmatch(bare, -1) {
		file, _, _ := strings.Cut(string(slices.Concat(found[1], found[2], found[3])), "#")
		if file == "" || p.files[styleDir+file] != nil {
			continue // a part of the page itself, or read already
		}
		if !plainFile.MatchString(file) {
			return fmt.Errorf("style: %s loads %.80q, but the page contacts no other server; put the file next to the style sheet or in a directory there, name it with letters, digits, dots and dashes, and write url(fonts/name.woff2)", name, file)
		}
		if used++; used > maxOfStyle {
			return fmt.Errorf("style: %s uses more than %d files; use fewer", name, maxOfStyle)
		}
		if err := p.readOfStyle(filepath.Dir(name), file); err != nil {
			return fmt.Errorf("style: %s: %w", name, err)
		}
	}
	p.files[styleName] = newFile(contentTypes[".css"], sheet)
	return nil
}

// styled reports whether the page has a style sheet of the operator.
func (p *Page) styled() bool { return p.files[styleName] != nil }

func (p *Page) readOfStyle(dir, file string) error {
	kind := styleTypes[strings.ToLower(path.Ext(file))]
	if kind == "" {
		return fmt.Errorf("url(%s) is neither a font nor an image; use WOFF2, WOFF, TTF, OTF, SVG, PNG, JPEG, WebP, AVIF or GIF", file)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	content, err := root.ReadFile(file)
	if err != nil {
		return err
	}
	if len(content) > maxFile {
		return fmt.Errorf("%s has more than %d kB; make it smaller, since logins load it", file, maxFile>>10)
	}
	p.files[styleDir+file] = newFile(kind, content)
	return nil
}
