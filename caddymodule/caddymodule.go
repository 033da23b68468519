// Package caddymodule is what xcaddy is pointed at: it makes an auth service of
// Caddy by importing the rooms that do, and is nothing besides. Read gate for
// what a request meets, app for what is configured, guest to write a gateway,
// captcha, provider or store of your own. The tests of whole Caddy processes are in
// integration.
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
