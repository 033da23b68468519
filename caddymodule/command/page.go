package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/gate"
	"github.com/mnemogate/mnemogate/caddymodule/page"
)

func (c *cli) pageCommand() *cobra.Command {
	var preview bool
	var listen string
	cmd := c.command("page --preview [<company>] [--config <file>] [--listen <host:port>]", "Shows the login page and mails without accounts",
		`Serves every screen of the login page, in each state, language and color scheme,
with the looks of login_page in the configuration: that of the company or, if
you name none, the first one. It also serves the mails to the company's users.
It reads the files again at each start. It needs no running server, accounts or
stores, and sends nothing. Stop it with Ctrl-C.`,
		cobra.MaximumNArgs(1), func(args []string) error {
			if !preview {
				return errors.New("add --preview: the command has no other function yet")
			}
			return c.previewPage(listen, strings.Join(args, ""))
		})
	cmd.Flags().BoolVar(&preview, "preview", false, "Serve the preview")
	cmd.Flags().StringVar(&listen, "listen", "localhost:8088", "The address of the preview")
	return cmd
}

func (c *cli) previewPage(listen, company string) error {
	config, file, _, err := caddycmd.LoadConfig(c.config, c.adapter)
	if err != nil {
		return err
	}
	if config == nil {
		return errors.New("there is no Caddyfile here: name the configuration with --config")
	}
	looks, name, mails, err := looksOf(config, company)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	handler, err := page.Preview(looks, name, mails)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return cannotListen(err)
	}
	defer c.interruptible()()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(c.cmd.Context(), func() { _ = server.Close() })
	defer stop()
	fmt.Fprintf(c.cmd.OutOrStdout(), "The preview is at http://%s/\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// looksOf returns the options of the login page of a company in a configuration, what
// people call the company, and how its mails look. An empty code means the first page's
// first company.
func looksOf(config []byte, code string) (page.Options, string, page.Mails, error) {
	var c struct {
		Apps struct {
			Mnemogate struct {
				page.Mails
				Companies map[string]struct {
					page.Mails
					Name  string
					OAuth map[int]struct{ Icon string }
				}
			}
			HTTP any
		}
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return page.Options{}, "", page.Mails{}, err
	}
	companies := c.Apps.Mnemogate.Companies
	icons := map[string]string{}
	for code, company := range companies {
		for id, provider := range company.OAuth {
			icons[page.IconName(code, id)] = provider.Icon
		}
	}
	var found *gate.LoginPage
	handlers(c.Apps.HTTP, func(handler map[string]any) {
		raw, _ := json.Marshal(handler) // it was JSON
		var h gate.Handler
		if json.Unmarshal(raw, &h) != nil {
			return
		}
		for _, p := range h.LoginPages {
			if p.Companies == nil {
				p.Companies = h.Companies
			}
			if p.Companies == nil {
				p.Companies = slices.Sorted(maps.Keys(companies))
			}
			if found == nil && (code == "" && len(p.Companies) > 0 || slices.Contains(p.Companies, code)) {
				found = p
			}
		}
	})
	if _, known := companies[code]; code != "" && !known {
		return page.Options{}, "", page.Mails{}, fmt.Errorf("there is no company %s in it; correct the code", code)
	}
	if found == nil {
		return page.Options{}, "", page.Mails{}, fmt.Errorf("no site has a login_page for %s; write login_page in the directive mnemogate", cmp.Or(code, "any company"))
	}
	found.Icons = icons
	code = cmp.Or(code, found.Companies[0])
	own := companies[code]
	return found.Options, cmp.Or(own.Name, code), own.Or(c.Apps.Mnemogate.Mails), nil
}

// handlers calls f for each handler mnemogate in a configuration.
func handlers(config any, f func(map[string]any)) {
	switch config := config.(type) {
	case []any:
		for _, element := range config {
			handlers(element, f)
		}
	case map[string]any:
		if config["handler"] == "mnemogate" {
			f(config)
		}
		for _, key := range slices.Sorted(maps.Keys(config)) {
			handlers(config[key], f)
		}
	}
}
