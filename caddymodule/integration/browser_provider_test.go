package integration

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// accepts checks the boxes of all disclaimers.
func (b *tab) accepts() {
	b.t.Helper()
	b.eval(`document.querySelectorAll('#disclaimers input:not(:checked)').forEach((box) => box.click())`)
}

// logsInAtProvider fills in the form of oidc-provider.
func (b *tab) logsInAtProvider(user string) {
	b.t.Helper()
	b.eval(`(() => {
		document.querySelector('input[name=login]').value = ` + quote(user) + `;
		document.querySelector('input[name=password]').value = 'any';
		setTimeout(() => document.querySelector('form').submit());
	})()`)
}

// A login with a provider, followed by disclaimers, leads to the page that the browser
// wanted. The login is as old as that at the provider. Where the page asks for a new
// login, so does the provider.
func TestBrowserGoesToAProvider(t *testing.T) {
	var provider *openID
	app := newBrowserApp(t)
	s := startBrowserSiteAt(t, []string{"MNEMOGATE_PEER_SECRET=" + peerSecret}, app, func(s *site) siteConfig {
		page := s.URL + "/acme/login"
		provider = startOpenID(t, page)
		config := provider.provider(1, "name \"<img src=x onerror=alert(1)> & Co\"")
		return siteConfig{
			company: people + disclaimers + "account sam {\nlogin sam\nidentity 1 sam-at-provider\n}" + strings.Replace(config, "redirect_uri ", "redirect_uri "+page+" ", 1),
			handler: "login_page\nforward auth_time",
		}
	})
	b := newBrowser(t)
	b.loud = true // the provider's pages may have errors
	visits := func() {
		b.sees("login-provider", ".other")
		b.eval(`document.querySelector('#screen .other').click()`)
	}
	isAsked := func() {
		b.waits(`document.querySelector('input[name=login]') && location.origin === ` + quote(provider.Issuer))
	}
	logsInAs := b.logsInAtProvider
	for _, answer := range []string{"error=server_error", "code=x", "error_code=4201&error_message=User+canceled#_=_"} { // without state
		b.open(s.URL + "/acme/login?" + answer)
		b.shows(".alert p", "error.oauth.denied")
		b.reloads("login-provider", ".other")
	}
	b.startsWith(`if (globalThis.sessionStorage?.silent) {
		const { parse } = JSON;
		JSON.parse = (text) => {
			const read = parse(text);
			for (const provider of read?.config?.oauth ?? []) provider.authorize_url = null;
			return read;
		};
	}`)
	var logins []string // their times
	for round, address := range []string{"/home?x=1", "/home?x=1", "/acme/login?fresh=0&return_to=" + url.QueryEscape("/home?x=1")} {
		if round == 2 {
			storetest.Eventually(t, 5*time.Second, "older login at the provider", func() bool { return fmt.Sprint(time.Now().Unix()) > logins[1] })
		}
		if round == 1 {
			b.eval(`void (sessionStorage.silent = 'yes')`) // it did not answer while the page was made
		}
		b.open(s.URL + address)
		visits()
		if round == 0 { // with the wrong account
			isAsked()
			logsInAs("nobody")
			b.shows(".alert p", "error.auth.oauth.notfound")
			visits() // now for select_account, which this provider does not know
			b.shows(".alert p", "error.oauth.denied")
			b.waits(`document.querySelector('.alert .links').textContent.endsWith('oauth.denied: invalid_request')`) // for support
			visits()
		}
		if round == 2 { // the user can't get around it
			isAsked()
			b.eval(`void setTimeout(() => document.querySelector('a[href$="/abort"]').click())`)
			b.shows(".alert p", "error.oauth.denied")
			b.waits(`!document.querySelector('.alert').textContent.includes('access_denied')`)
			b.reloads("login-provider", ".other")
			visits()
		}
		if round != 1 { // then the provider remembers the user
			isAsked()
			logsInAs("sam-at-provider")
		}
		if round == 0 {
			b.sees("disclaimers", "#disclaimers")
			b.reloads("disclaimers", "#disclaimers")
			b.submits()
			b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
			b.accepts()
			b.submits()
		}
		b.isUser("sam")
		b.waits(`location.pathname + location.search === '/home?x=1'`)
		b.open(s.URL + "/acme/login?state=old&code=old") // as Back may do
		b.sees("already", ".stack")
		app.mu.Lock()
		logins = append(logins, app.authTime)
		app.mu.Unlock()
		b.logsOut(s)
	}
	if logins[0] == "" || logins[0] != logins[1] || logins[1] >= logins[2] { // in seconds
		t.Errorf("the logins are of %s; want two as old as that at the provider, and a new one", logins)
	}
	b.open(s.URL + "/home")
	b.sees("login-provider", ".other")
	b.enters("login", "alice@example.com")
	b.sees("password-disclaimers", "#disclaimers")
	b.types("password", testPassword)
	b.submits()
	b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
	b.accepts()
	b.submits()
	b.isUser("alice")
	b.logsOut(s)

	b.open(s.URL + "/home")
	b.sees("login-provider", ".other")
	b.enters("login", "+37060000002")
	b.sees("code-disclaimers", "#disclaimers")
	b.eval(`document.querySelector('#disclaimers').remove()`) // as if they were new
	b.enters("code", s.sms.last("otp.login", "code"))
	b.complainsOf("disclaimers-0", "error.auth.disclaimer.invalid")
	b.isTold("notice.code.resent")
	b.accepts()
	b.enters("code", s.sms.last("otp.login", "code"))
	b.isUser("bob")
}

const microsoftTenant = "9188040d-6c67-4c5b-b112-36a304b66dad"

// likeProviders says how oidc-provider is set up like each provider of
// docs/configuration.md, and which options of the page a login then can't do without.
var likeProviders = map[string]struct {
	like    fields
	subject string   // default: sam-at-provider
	needs   []string // a login fails without any of them
}{
	"Google": {},
	"Apple": {needs: []string{"response_mode form_post"}, like: fields{"form": true, "basic": false, "document": fields{
		"token_endpoint_auth_methods_supported": []string{"client_secret_post"}, "code_challenge_methods_supported": nil}}},
	"Microsoft": {like: fields{"path": "/" + microsoftTenant + "/v2.0", "alias": "/organizations/v2.0", "claims": fields{"tid": microsoftTenant}}},
	"LinkedIn": {needs: []string{"nonce off", "auth_style post"}, like: fields{"path": "/oauth", "nonce": false, "basic": false, "document": fields{
		"token_endpoint_auth_methods_supported": nil, "code_challenge_methods_supported": nil}}},
	"GitHub": {subject: "583231", needs: []string{"auth_style post"}, like: fields{"nonce": false, "basic": false,
		"routes": fields{"authorization": "/login/oauth/authorize", "token": "/login/oauth/access_token"}}},
	"Keycloak": {like: fields{"path": "/realms/customers"}},
}

// providerRows returns the blocks of the table in docs/configuration.md by the provider's
// name: the words after oauth <1-5>, and then the options.
func providerRows(t *testing.T) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for line := range strings.Lines(section(t, "docs/configuration.md", "OAuth providers")) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 3 {
			continue
		}
		for _, found := range code.FindAllStringSubmatch(cells[1], -1) {
			rows[cells[0]] = append(rows[cells[0]], found[1])
		}
	}
	return rows
}

var anySite = regexp.MustCompile(`https://[^/ ]+`)

// With what the page says of each provider, users log in with an oidc-provider that is set
// up like it. Without an option that one needs, they don't.
func TestBrowserLogsInWithEachProviderOfThePage(t *testing.T) {
	rows := providerRows(t)
	if len(rows) != len(likeProviders) {
		t.Errorf("the page has %d providers, and the test %d", len(rows), len(likeProviders))
	}
	known := strings.NewReplacer("<realm>", "customers", "<tenant id>...", microsoftTenant)
	providers, without := map[string]*openID{}, map[string]string{} // by company
	s := startBrowserSiteAt(t, []string{"MNEMOGATE_PEER_SECRET=" + peerSecret}, newBrowserApp(t), func(s *site) siteConfig {
		config := siteConfig{company: "captcha off"}
		for name, row := range rows {
			as := likeProviders[name]
			page := func(company string) string { return s.URL + "/" + company + "/login" }
			lacking := func(option string) string { return name + "-" + strings.Fields(option)[0] }
			pages := []string{page(name)}
			for _, option := range as.needs {
				pages = append(pages, page(lacking(option)))
			}
			provider := startOpenIDLike(t, as.like, pages...)
			company := func(company, option string) {
				providers[company], without[company] = provider, option
				block := slices.DeleteFunc(slices.Clone(row), func(o string) bool { return o == option })
				if option != "" && len(block) == len(row) {
					t.Errorf("the page does not say %s", option)
				}
				for i := range block {
					block[i] = anySite.ReplaceAllString(known.Replace(block[i]), provider.Issuer)
				}
				config.more += fmt.Sprintf("company %s {\napi_key off\ncaptcha off\noauth 1 %s {\nclient_id mnemogate\nclient_secret {env.MNEMOGATE_PEER_SECRET}\nredirect_uri %s\n%s\n}\n%s}\n",
					company, block[0], page(company), strings.Join(block[1:], "\n"), account("sam", "identity 1 "+cmp.Or(as.subject, "sam-at-provider")))
			}
			company(name, "")
			for _, option := range as.needs {
				company(lacking(option), option)
			}
		}
		config.handler = "login_page " + strings.Join(slices.Sorted(maps.Keys(providers)), " ")
		return config
	})
	for company, provider := range providers {
		t.Run(company, func(t *testing.T) {
			b := newBrowser(t)
			b.loud = true // the provider's pages may have errors
			path := "/" + company + "/home?x=1#y"
			b.open(s.URL + path)
			b.waits(`document.querySelector('#screen .other') !== null`)
			b.eval(`document.querySelector('#screen .other').click()`)
			b.waits(`location.origin === ` + quote(provider.Issuer) + ` && document.body !== null && document.readyState === 'complete'`)
			switch without[company] {
			case "":
				b.logsInAtProvider("sam-at-provider")
				b.isUser("sam")
				b.waits(`location.pathname + location.search + location.hash === ` + quote(path))
			case "response_mode form_post":
				b.waits(`document.body.innerText.includes('response_mode must be form_post')`)
			default:
				b.logsInAtProvider("sam-at-provider")
				b.shows(".alert p", "error.auth.oauth.failed")
			}
		})
	}
}
