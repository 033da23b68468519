// Package caddymodule is the package that xcaddy builds into Caddy. It only imports
// the packages that register Caddy modules. Read package gate to see what happens to
// a request, app for the configuration, and guest to write a gateway, captcha,
// provider or store of your own. Package integration tests whole Caddy processes.
package caddymodule

import (
	_ "github.com/mnemogate/mnemogate/caddymodule/accounts"
	_ "github.com/mnemogate/mnemogate/caddymodule/admin"
	_ "github.com/mnemogate/mnemogate/caddymodule/captcha"
	_ "github.com/mnemogate/mnemogate/caddymodule/command"
	_ "github.com/mnemogate/mnemogate/caddymodule/gate"
	_ "github.com/mnemogate/mnemogate/caddymodule/oauth"
	_ "github.com/mnemogate/mnemogate/caddymodule/senders"
	_ "github.com/mnemogate/mnemogate/caddymodule/stores"
)
