package page

import (
	"net/http"
	"path"
	"sync"
)

// modules are the files of client.js at addresses that stay, where the page's own have
// a version in theirs. They are made when they are first wanted: packing them takes
// time that commands and hashing processes need not spend.
var modules = map[string]func() *file{"client.js": module("client.js"), "client.d.ts": module("client.d.ts")}

// ServeModule answers with client.js or its types, whatever stands before their name
// in the path. They are the same for everyone and hold no secret.
func ServeModule(w http.ResponseWriter, r *http.Request, name string) {
	modules[path.Base(name)]().serve(w, r, "no-cache")
}

func module(name string) func() *file {
	return sync.OnceValue(func() *file {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // embed has refused to build
		}
		return newFile(contentTypes[path.Ext(name)], content)
	})
}
