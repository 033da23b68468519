package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
)

// clients makes clients of the accounts API, by their names. A client is a command, whose
// only argument is the name of an account that it creates. Its environment says where the
// APIs are, and has the keys.
var clients = map[string]func(*testing.T) []string{
	"node":          func(t *testing.T) []string { return example(t, "node", "accounts.mjs") },
	"python":        func(t *testing.T) []string { return example(t, "python3", "accounts.py") },
	"go":            func(t *testing.T) []string { return example(t, "go", "accounts.go") },
	"openapi-fetch": openAPIFetchClient,
	"orval":         orvalClient,
	"oapi-codegen":  oapiCodegenClient,
}

// example returns the command of a program of docs/examples/accounts.
func example(t *testing.T, language, file string) []string {
	need(t, language)
	file = get(filepath.Abs("../../docs/examples/accounts/" + file))(t)
	if language != "go" {
		return []string{language, file}
	}
	program := t.TempDir() + "/accounts"
	output(t, exec.Command("go", "build", "-o", program, file))
	return []string{program}
}

// What each client says.
const clientsSay = `sign-up 201 403 403
change 412 200 staff lt
change nobody 404
identity 200 1 204 0
pages 2 2 1
token 201 200 403 403 scope
ref mnemogate.request.refused NAME scope
introspect true NAME true token true NAME true token
revoke 204 false
support 201 Anna Ö Anna Ö ticket 4711
move 204 1 1 true
`

// Contract, sections 23 to 25: the programs of docs/examples/accounts, and clients made from
// the OpenAPI documents, use the accounts API and issued tokens, on all deployments.
func TestClientsOfTheAccountsAPI(t *testing.T) {
	t.Parallel()
	sites := map[string]*site{}
	phones := map[string]*keytest.Authenticator{}
	var moved sync.Map // the phones of the accounts that clients have moved
	for _, d := range deployments {
		s := accountsSite(t, d.start, allKeys+"\nkey support acts-and-nothing-else {\nmay act\n}", siteConfig{company: passkeys + "\nissued_tokens"})
		for name := range clients {
			for _, account := range []string{name + "/?", name + "/2?"} {
				phones[account+d.name] = new(keytest.Authenticator)
				s.api(keyOfAll, "POST", "acme/accounts", fields{"profile_mnemocode": account + "-moves", "login_name": account}).wantStatus(201)
				s.newPasskey(phones[account+d.name], account+"-moves")
			}
		}
		sites[d.name] = s
	}
	t.Run("all", func(t *testing.T) {
		for name, made := range clients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				command := made(t)
				for deployment, s := range sites {
					nodes := s.all()
					run := func(account string) (said string) {
						ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a client may wait forever
						defer cancel()
						cmd := exec.CommandContext(ctx, command[0], append(command[1:], account)...)
						cmd.Env = append(os.Environ(), "ACCOUNTS_API="+nodes[0].URL+"/api", "APP="+nodes[len(nodes)-1].URL,
							"ACCOUNTS_KEY="+keyOfAll, "SIGNUP_KEY=creates-and-nothing-else", "SUPPORT_KEY=acts-and-nothing-else")
						var fails bytes.Buffer
						cmd.Stderr = &fails
						out, err := cmd.Output()
						if diff := cmp.Diff(strings.ReplaceAll(clientsSay, "NAME", account), string(out)); err != nil || diff != "" {
							return fmt.Sprintf("on %s: %v %s\n%s", deployment, err, &fails, diff)
						}
						return ""
					}
					account, before := name+"/?", s.refusals()
					said := run(account)
					if said != "" && s.refusals() != before { // a store was too late, perhaps for this client
						t.Log(said)
						account = name + "/2?"
						said = run(account)
					}
					if said != "" {
						t.Error(said)
					}
					moved.Store(name+deployment, phones[account+deployment])
				}
			})
		}
	})
	for _, d := range deployments {
		for name := range clients { // a passkey logs in after its account has moved
			s := sites[d.name]
			phone, _ := moved.Load(name + d.name)
			s.post("passkey/login", "", s.passkeyAnswer(phone.(*keytest.Authenticator), "acme", passkeyOrigin)).wantState(record.Authorized)
		}
	}
}
