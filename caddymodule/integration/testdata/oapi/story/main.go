// The client that oapi-codegen makes of the accounts API's document. docs/examples/accounts
// has the story that it tells, with comments.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"generated/accounts"
)

const company = "acme"

var (
	ctx     = context.Background()
	name    = os.Args[1]
	subject = "a/b ü+% " + name
)

// may gives a request a key.
func may(key string) accounts.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}
}

// basic gives a request a key as client_secret_basic.
func basic(key string) accounts.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		r.SetBasicAuth("stats", url.QueryEscape(key))
		return nil
	}
}

// done returns the answer to a request.
func done[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}

func visit(token *string, method, path string) (status int, text string) {
	r := done(http.NewRequest(method, os.Getenv("APP")+path, nil))
	r.Header.Set("Authorization", "Bearer "+*token)
	response := done(http.DefaultClient.Do(r))
	defer response.Body.Close()
	return response.StatusCode, string(done(io.ReadAll(response.Body)))
}

func statusOf(token *string, method, path string) int {
	status, _ := visit(token, method, path)
	return status
}

func until(is func() bool) {
	for !is() {
		time.Sleep(50 * time.Millisecond)
	}
}

func main() {
	all, signUp, support := may(os.Getenv("ACCOUNTS_KEY")), may(os.Getenv("SIGNUP_KEY")), may(os.Getenv("SUPPORT_KEY"))
	oauth := done(accounts.NewClientWithResponses(os.Getenv("ACCOUNTS_API"))) // says who it is in each request
	api := done(accounts.NewClientWithResponses(os.Getenv("ACCOUNTS_API"), accounts.WithRequestEditorFn(all)))

	created := done(api.CreateAccountWithResponse(ctx, company, nil, accounts.NewAccount{ProfileMnemocode: name, Role: new("staff")}, signUp))
	fmt.Println("sign-up", created.StatusCode(), done(api.ShowAccountWithResponse(ctx, company, name, signUp)).StatusCode(),
		done(api.DeleteAccountWithResponse(ctx, company, name, nil, signUp)).StatusCode())

	said := []any{"change"}
	for status := 0; status != 200; {
		read := done(api.ShowAccountWithResponse(ctx, company, name))
		locale := "none"
		if read.JSON200.Locale != nil {
			locale = *read.JSON200.Locale
		} else {
			done(api.ChangeAccountWithResponse(ctx, company, name, nil, accounts.AccountPatch{Locale: new("lt")}))
		}
		ifMatch := accounts.ChangeAccountParams{IfMatch: new(read.HTTPResponse.Header.Get("ETag"))}
		status = done(api.ChangeAccountWithResponse(ctx, company, name, &ifMatch, accounts.AccountPatch{Role: new(*read.JSON200.Role + " " + locale)})).StatusCode()
		said = append(said, status)
	}
	fmt.Println(append(said, *done(api.ShowAccountWithResponse(ctx, company, name)).JSON200.Role)...)
	fmt.Println("change nobody", done(api.ShowAccountWithResponse(ctx, company, "nobody")).StatusCode())

	found := func() int {
		return len(done(api.ListAccountsWithResponse(ctx, company, &accounts.ListAccountsParams{ProviderId: new(1), Subject: &subject})).JSON200.Accounts)
	}
	fmt.Println("identity", done(api.AddIdentityWithResponse(ctx, company, name, 1, subject, nil)).StatusCode(), found(),
		done(api.RemoveIdentityWithResponse(ctx, company, name, 1, subject, nil)).StatusCode(), found())

	query := accounts.ListAccountsParams{Role: &name, Status: new(accounts.ListAccountsParamsStatus("active")), PasswordSet: new(false), Limit: new(2)}
	for i := range 7 {
		account := accounts.NewAccount{ProfileMnemocode: fmt.Sprint(name, "-", i), Role: &name}
		if i == 3 {
			account.Password = new("a fine new secret")
		}
		shown := done(api.CreateAccountWithResponse(ctx, company, nil, account))
		if i == 1 {
			query.UpdatedSince = &shown.JSON201.UpdatedAt
		}
	}
	said = []any{"pages"}
	for more := true; more; more = query.After != nil {
		page := done(api.ListAccountsWithResponse(ctx, company, &query)).JSON200
		said = append(said, len(page.Accounts))
		query.After = page.Next
	}
	fmt.Println(said...)

	issued := done(api.IssueTokenWithResponse(ctx, company, name, nil, accounts.NewToken{Name: new("nightly"), Paths: []string{"/reports/*"}, Methods: []string{"GET"}, ExpiresIn: new(3600)}))
	token := issued.JSON201
	status, text := visit(token.Token, "GET", "/orders")
	var refused struct{ Reason, Ref string }
	done(0, json.Unmarshal([]byte(text), &refused))
	fmt.Println("token", issued.StatusCode(), statusOf(token.Token, "GET", "/reports/1"), statusOf(token.Token, "POST", "/reports/1"), status, refused.Reason)

	var events []accounts.Event
	until(func() bool {
		events = done(api.FindRefWithResponse(ctx, company, &accounts.FindRefParams{Ref: refused.Ref})).JSON200.Events
		return len(events) > 0
	})
	fmt.Println("ref", events[0].Event, *events[0].ProfileMnemocode, *events[0].Reason)

	byBasic := func(token *string) *accounts.Introspection {
		return done(oauth.IntrospectWithFormdataBodyWithResponse(ctx, company, accounts.IntrospectFormdataRequestBody{Token: *token}, basic(os.Getenv("ACCOUNTS_KEY")))).JSON200
	}
	byPost := func(token *string) *accounts.Introspection {
		body := accounts.IntrospectFormdataRequestBody{Token: *token, ClientSecret: new(os.Getenv("ACCOUNTS_KEY"))}
		return done(oauth.IntrospectWithFormdataBodyWithResponse(ctx, company, body)).JSON200
	}
	said = []any{"introspect"}
	for _, c := range []*accounts.Introspection{byBasic(token.Token), byPost(token.Token)} {
		said = append(said, c.Active, *c.Sub, *c.Token == token.Id, (*c.Amr)[0])
	}
	fmt.Println(said...)

	revoked := done(api.RemoveTokenWithResponse(ctx, company, name, token.Id, nil))
	fmt.Println("revoke", revoked.StatusCode(), byBasic(token.Token).Active)
	until(func() bool { return statusOf(token.Token, "GET", "/reports/1") == 401 })

	acting := done(api.IssueTokenWithResponse(ctx, company, name, nil, accounts.NewToken{Actor: new("Anna Ö"), Reason: new("ticket 4711"), Paths: []string{"/*"}, Methods: []string{"GET"}}, support))
	_, text = visit(acting.JSON201.Token, "GET", "/orders")
	actor := done(url.PathUnescape(regexp.MustCompile(`\nX-Profile-Actor: (\S*)`).FindStringSubmatch(text)[1]))
	said = []any{"support", acting.StatusCode(), actor, byBasic(acting.JSON201.Token).Act.Sub}
	for _, listed := range done(api.ListTokensWithResponse(ctx, company, name, support)).JSON200.Tokens {
		said = append(said, *listed.Reason)
	}
	fmt.Println(said...)

	exported := func() (line string) {
		for line := range strings.Lines(string(done(api.ExportAccountsWithResponse(ctx, company, nil)).Body)) {
			if strings.Contains(line, fmt.Sprintf("%q", name+"-moves")) {
				return line
			}
		}
		return ""
	}
	line := exported()
	deleted := done(api.DeleteAccountWithResponse(ctx, company, name+"-moves", nil))
	imported := done(api.ImportAccountsWithBodyWithResponse(ctx, company, nil, "application/x-ndjson", strings.NewReader(line)))
	var counts struct{ Created int }
	var read struct{ Passkeys []any }
	done(done(0, json.Unmarshal(imported.Body, &counts)), json.Unmarshal([]byte(line), &read))
	fmt.Println("move", deleted.StatusCode(), counts.Created, len(read.Passkeys), exported() == line)
}
