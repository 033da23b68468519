//go:build ignore

// Does what docs/backends.md describes of the accounts API and of issued tokens, and says
// what came of it. APP is where Caddy serves your application:
//
//	ACCOUNTS_API=… ACCOUNTS_KEY=… SIGNUP_KEY=… SUPPORT_KEY=… APP=… go run accounts.go erin
package main

import (
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
)

type object = map[string]any

var (
	key, signUpKey, supportKey = os.Getenv("ACCOUNTS_KEY"), os.Getenv("SIGNUP_KEY"), os.Getenv("SUPPORT_KEY")
	company                    = os.Getenv("ACCOUNTS_API") + "/acme/"
	name                       = os.Args[1]
	account                    = "accounts/" + url.PathEscape(name) // a name can have a slash
)

// Answers can take 30 s to begin, and those of an export or import any time to end.
var client = http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 40 * time.Second}}

type answer struct {
	status int
	etag   string
	text   string
	body   object // nil if the text is no object
}

func (a answer) list(field string) []any { return a.body[field].([]any) }

// send sends a request with the headers, which come in pairs.
func send(method, address, body string, header ...string) (a answer) {
	r, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	_ = json.Unmarshal(text, &a.body)
	a.status, a.etag, a.text = response.StatusCode, response.Header.Get("ETag"), string(text)
	return a
}

// call calls the accounts API with a key. The body is sent as JSON, unless it is nil.
func call(key, method, path string, body object, header ...string) answer {
	var text []byte
	if body != nil {
		text, _ = json.Marshal(body)
	}
	return send(method, company+path, string(text), append(header, "Content-Type", "application/json", "Authorization", "Bearer "+key)...)
}

// visit sends a request to the application with an issued token.
func visit(token any, method, path string) answer {
	return send(method, os.Getenv("APP")+path, "", "Authorization", "Bearer "+token.(string))
}

// until waits for something: other nodes learn of a change within 100 ms.
func until(is func() bool) {
	for !is() {
		time.Sleep(50 * time.Millisecond)
	}
}

// change changes an account from what it was when it was read. If somebody else was faster,
// it reads it anew. It returns the status of each try.
func change(path string, edit func(read object) object) (tried []any) {
	for {
		read := call(key, "GET", path, nil)
		if read.status != http.StatusOK {
			return append(tried, read.status)
		}
		status := call(key, "PATCH", path, edit(read.body), "If-Match", read.etag).status
		tried = append(tried, status)
		if status != http.StatusPreconditionFailed {
			return tried
		}
	}
}

// introspect asks what a token is worth, like a service that is not behind mnemogate.
func introspect(token any, more url.Values, header ...string) object {
	form := url.Values{"token": {token.(string)}}
	for name, values := range more {
		form[name] = values
	}
	return send("POST", company+"introspect", form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...).body
}

// byBasic and byPost do so as clients of OAuth.
func byBasic(token any) object {
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth("stats", url.QueryEscape(key))
	return introspect(token, nil, "Authorization", r.Header.Get("Authorization"))
}

func byPost(token any) object {
	return introspect(token, url.Values{"client_id": {"stats"}, "client_secret": {key}})
}

func main() {
	// A key with the right create, for sign-ups, can do nothing else.
	created := call(signUpKey, "POST", "accounts", object{"profile_mnemocode": name, "role": "staff"})
	fmt.Println("sign-up", created.status, call(signUpKey, "GET", account, nil).status, call(signUpKey, "DELETE", account, nil).status)

	tried := change(account, func(read object) object {
		if read["locale"] == nil {
			call(key, "PATCH", account, object{"locale": "lt"}) // somebody else, between reading and changing
		}
		return object{"role": fmt.Sprint(read["role"], " ", read["locale"])}
	})
	fmt.Println(append(append([]any{"change"}, tried...), call(key, "GET", account, nil).body["role"])...)
	fmt.Println(append([]any{"change nobody"}, change("accounts/nobody", func(object) object { return nil })...)...)

	// The user of an OAuth provider. A subject can have a slash.
	subject := "a/b ü+% " + name
	identity := account + "/identities/1/" + url.PathEscape(subject)
	found := func() int {
		query := url.Values{"provider_id": {"1"}, "subject": {subject}}
		return len(call(key, "GET", "accounts?"+query.Encode(), nil).list("accounts"))
	}
	fmt.Println("identity", call(key, "PUT", identity, nil).status, found(), call(key, "DELETE", identity, nil).status, found())

	// Pages are full, however few of the accounts pass the filters.
	query := url.Values{"role": {name}, "status": {"active"}, "password_set": {"false"}, "limit": {"2"}}
	for i := range 7 {
		account := object{"profile_mnemocode": fmt.Sprint(name, "-", i), "role": name}
		if i == 3 {
			account["password"] = "a fine new secret"
		}
		shown := call(key, "POST", "accounts", account)
		if i == 1 {
			query.Set("updated_since", shown.body["updated_at"].(string))
		}
	}
	pages := []any{"pages"}
	for more := true; more; {
		page := call(key, "GET", "accounts?"+query.Encode(), nil)
		pages = append(pages, len(page.list("accounts")))
		var next string
		next, more = page.body["next"].(string)
		query.Set("after", next)
	}
	fmt.Println(pages...)

	// A token for a program that reads reports.
	token := call(key, "POST", account+"/tokens", object{"name": "nightly", "paths": []string{"/reports/*"}, "methods": []string{"GET"}, "expires_in": 3600})
	secret := token.body["token"]
	refused := visit(secret, "GET", "/orders")
	fmt.Println("token", token.status, visit(secret, "GET", "/reports/1").status, visit(secret, "POST", "/reports/1").status, refused.status, refused.body["reason"])

	// Support finds the refusal by the ref that the program got.
	var events []any
	until(func() bool {
		events = call(key, "GET", "history?ref="+refused.body["ref"].(string), nil).list("events")
		return len(events) > 0
	})
	event := events[0].(object)
	fmt.Println("ref", event["event"], event["profile_mnemocode"], event["reason"])

	claims := []any{"introspect"}
	for _, c := range []object{byBasic(secret), byPost(secret)} {
		claims = append(claims, c["active"], c["sub"], c["token"] == token.body["id"], c["amr"].([]any)[0])
	}
	fmt.Println(claims...)

	revoked := call(key, "DELETE", fmt.Sprint(account, "/tokens/", token.body["id"]), nil)
	fmt.Println("revoke", revoked.status, byBasic(secret)["active"])
	until(func() bool { return visit(secret, "GET", "/reports/1").status == http.StatusUnauthorized })

	// Support acts as the user. The application learns who that is.
	acting := call(supportKey, "POST", account+"/tokens", object{"actor": "Anna Ö", "reason": "ticket 4711", "paths": []string{"/*"}, "methods": []string{"GET"}})
	header := regexp.MustCompile(`\nX-Profile-Actor: (\S*)`).FindStringSubmatch(visit(acting.body["token"], "GET", "/orders").text)
	actor, err := url.PathUnescape(header[1])
	if err != nil {
		log.Fatal(err)
	}
	said := []any{"support", acting.status, actor, byBasic(acting.body["token"])["act"].(object)["sub"]}
	for _, listed := range call(supportKey, "GET", account+"/tokens", nil).list("tokens") {
		said = append(said, listed.(object)["reason"])
	}
	fmt.Println(said...)

	// Accounts move with their passkeys. Here one leaves and comes back.
	exported := func() (line string) {
		for line := range strings.Lines(call(key, "GET", "export", nil).text) {
			if strings.Contains(line, fmt.Sprintf("%q", name+"-moves")) {
				return line
			}
		}
		return ""
	}
	line := exported()
	deleted := call(key, "DELETE", account+"-moves", nil)
	counts := send("POST", company+"import", line, "Content-Type", "application/x-ndjson", "Authorization", "Bearer "+key)
	var read struct{ Passkeys []any }
	if err := json.Unmarshal([]byte(line), &read); err != nil {
		log.Fatal(err)
	}
	fmt.Println("move", deleted.status, counts.body["created"], len(read.Passkeys), exported() == line)
}
