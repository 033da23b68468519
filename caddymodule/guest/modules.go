package guest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Module returns a parser of an option whose value is a plugin: see ParseModule.
func Module(namespace string, raw *json.RawMessage) Parser {
	return func(d *caddyfile.Dispenser) error { return ParseModule(d, namespace, raw) }
}

// ParseModule parses the name of a plugin of this namespace, and lets the plugin parse the
// arguments and the block after it. It sets raw to the plugin's JSON. The error for an
// unknown name lists the plugins of this Caddy, and then words.
func ParseModule(d *caddyfile.Dispenser, namespace string, raw *json.RawMessage, words ...string) error {
	name, problem := "", "the name of a module is missing"
	if d.NextArg() {
		name, problem = d.Val(), fmt.Sprintf("there is no module '%s'", d.Val())
	}
	if _, err := caddy.GetModule(namespace + "." + name); err != nil {
		var names []string
		for _, module := range caddy.GetModules(namespace) {
			names = append(names, module.ID.Name())
		}
		return d.Errf("%s; this Caddy has: %s", problem, strings.Join(append(names, words...), ", "))
	}
	guest, err := caddyfile.UnmarshalModule(d, namespace+"."+name)
	if err != nil {
		return err
	}
	*raw = caddyconfig.JSONModuleObject(guest, "module", name, nil)
	return nil
}

// Load loads the plugin whose JSON is in a field of host, which must be a pointer. It fails
// if the plugin is no T.
func Load[T any](ctx caddy.Context, host any, field string) (guest T, err error) {
	module, err := ctx.LoadModule(host, field)
	if err != nil {
		return guest, err
	}
	guest, ok := module.(T)
	if !ok {
		return guest, fmt.Errorf("the module's type %T is not what this option needs; use another module", module)
	}
	return guest, nil
}
