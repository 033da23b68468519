package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// Company is a tenant. It has its own API keys, accounts, policies, disclaimers and
// providers. No company can see or use anything of another.
type Company struct {
	// What people call the company: in SMS and mails, in authenticator apps, and as
	// the title of its login page unless `title` of `login_page` is set. At most 64
	// characters, without a colon. Default: its code.
	Name string `json:"name,omitempty"`

	// The keys that clients send in X-Api-Key; each of them is valid. A key is
	// either the key itself, preferably as a placeholder such as {env.NAME} or
	// {file.PATH}, or its SHA-256 as `sha256:` and 64 hex digits. At least one is
	// required unless `api_key_off` is set. Each start warns of a key that has fewer
	// than 12 characters or that another company has, too. Metrics and the audit log
	// identify a key by its position in this list, counted from 1.
	APIKeys []string `json:"api_keys,omitempty"`

	// Don't require an API key. Anyone may then call the company's auth routes, and
	// each start warns of it. Default: false.
	APIKeyOff bool `json:"api_key_off,omitempty"`

	// The legal texts that users must accept, in the order in which clients receive
	// them; at most 64. Default: none.
	Disclaimers []Disclaimer `json:"disclaimers,omitempty"`

	// The OAuth providers by the provider_id that clients send, 1 to 5. Accounts are
	// linked to users of a provider_id. Never give it to another provider, whose users
	// could then log in to accounts of others. Default: none.
	OAuthRaw map[string]json.RawMessage `json:"oauth,omitempty" caddy:"namespace=mnemogate.oauth inline_key=module"`

	// Accounts by profile_mnemocode. Each is created at start if the company has no
	// account with that mnemocode, and never changed afterwards. An account that was
	// deleted is not created again; use the accounts API for that. Default: none.
	Accounts map[string]*Account `json:"accounts,omitempty"`

	// The policies of this company, which override those of the app.
	policy.Policy

	code      string
	effective tenant.Company // includes inherited settings
	shortKey  bool           // an API key is easy to guess
	unusable  []string       // accounts that nobody can log in to
	seeds     []manage.Seed  // by mnemocode
}

// Account is an account that is created at start. It is not created if it exists or
// was deleted before, and it is never overwritten. Every field is optional. Nobody
// can log in to an account that has neither a password nor a phone nor an identity,
// unless a recovery gives it a password first.
type Account struct {
	// The primary phone number, in international format.
	Phone string `json:"phone,omitempty"`

	// The primary email.
	Email string `json:"email,omitempty"`

	// The login name.
	Login string `json:"login,omitempty"`

	// The language of the account's owner, as a language tag: `lt`, `pt-BR`.
	// Default: none.
	Locale string `json:"locale,omitempty"`

	// The password, preferably as a placeholder such as {env.NAME} or {file.PATH}, or its
	// hash: argon2id, bcrypt, scrypt, pbkdf2, sha256crypt or sha512crypt in PHC or crypt
	// format, or another that an import accepts. A plain password has at most 128
	// characters. The rules for new passwords don't apply to it.
	Password string `json:"password,omitempty"`

	// The control question. It requires an answer.
	Question string `json:"question,omitempty"`

	// The answer to the question. It may be a placeholder such as {env.NAME} or
	// {file.PATH}.
	Answer string `json:"answer,omitempty"`

	// Whether a login requires a one-time code after the password. Default: false.
	SecondFactor bool `json:"second_factor,omitempty"`

	// Whether the user must set a new password at the next login. Default: false.
	MustSetPassword bool `json:"must_set_password,omitempty"`

	// Users of OAuth providers who log in as this account.
	Identities []Identity `json:"identities,omitempty"`
}

// Identity is a user of an OAuth provider.
type Identity struct {
	// The provider_id, 1 to 5.
	Provider int `json:"provider"`

	// The provider's id of the user.
	Subject string `json:"subject"`
}

// provision loads the modules that the company names and works out its settings. Its
// errors begin with the name of the directive.
func (c *Company) provision(ctx caddy.Context, code string, app *policy.Policy) error {
	c.code = code
	c.effective = tenant.Company{
		Code:     code,
		Name:     c.Name,
		NoAPIKey: c.APIKeyOff,
		Texts:    message.DefaultTexts(),
		Policy:   tenant.DefaultPolicy(),
	}
	if err := c.Policy.Load(ctx); err != nil {
		return err
	}
	app.Apply(&c.effective)
	c.Policy.Apply(&c.effective)
	c.effective.Recovery.Methods = c.methods(c.effective.Recovery.Methods)
	for _, d := range c.Disclaimers {
		c.effective.Disclaimers = append(c.effective.Disclaimers, d.effective())
	}
	return guest.First(c.hashAPIKeys, func() error { return c.loadOAuth(ctx) }, c.resolveAccounts)
}

// Effective returns the company's settings, with those that it inherits.
func (c *Company) Effective() *tenant.Company { return &c.effective }

// methods returns the recovery methods. The default excludes QUESTION, because OWASP
// ASVS 5.0, 6.4.2 forbids it. If the company itself sets hardened and inherits its
// methods, QUESTION is removed. If both are set in the same place, check refuses
// them.
func (c *Company) methods(named []tenant.Method) []tenant.Method {
	switch {
	case named == nil:
		return c.usableMethods()
	case c.Recovery.Methods == nil && c.Hardened != nil && *c.Hardened:
		return slices.DeleteFunc(slices.Clone(named), func(m tenant.Method) bool { return m == tenant.ByQuestion })
	default:
		return named
	}
}

func (c *Company) usableMethods() []tenant.Method {
	var methods []tenant.Method
	if c.effective.SMS != nil {
		methods = append(methods, tenant.ByPhone)
	}
	if c.effective.Mail != nil && c.effective.Recovery.Link != "" {
		methods = append(methods, tenant.ByMail)
	}
	return methods
}

// hashAPIKeys replaces the keys with their hashes, so that memory doesn't hold the
// keys.
func (c *Company) hashAPIKeys() error {
	for _, key := range c.APIKeys {
		if err := guest.ResolveInto("api_key", &key); err != nil {
			return err
		}
		hash, err := guest.HashKey(key)
		if err != nil {
			return fmt.Errorf("api_key: %w", err)
		}
		c.effective.APIKeys = append(c.effective.APIKeys, hash)
		c.shortKey = c.shortKey || guest.IsShortKey(key)
	}
	c.APIKeys = nil
	return nil
}

func (c *Company) loadOAuth(ctx caddy.Context) error {
	c.effective.OAuth = map[int]tenant.OAuth{}
	for _, id := range slices.Sorted(maps.Keys(c.OAuthRaw)) {
		n, ok := providerID(id)
		if !ok {
			return fmt.Errorf("oauth %s: a provider's id is 1 to 5", id)
		}
		// Load the modules one at a time: an error of LoadModule for all of them
		// would not say which one failed.
		provider := struct {
			Raw json.RawMessage `caddy:"namespace=mnemogate.oauth inline_key=module"`
		}{c.OAuthRaw[id]}
		g, err := guest.Load[guest.OAuthModule](ctx, &provider, "Raw")
		if err != nil {
			return fmt.Errorf("oauth %s: %w", id, err)
		}
		settings := g.Settings()
		settings.Provider = g
		settings.Authorizer, _ = g.(tenant.OAuthAuthorizer)
		c.effective.OAuth[n] = settings
	}
	c.OAuthRaw = nil
	return nil
}

// providerID reads the id of an OAuth provider.
func providerID(id string) (n int, ok bool) {
	n, err := strconv.Atoi(id)
	return n, err == nil && n >= 1 && n <= record.MaxProvider && len(id) == 1
}

// resolveAccounts turns the accounts into seeds and forgets their secrets.
func (c *Company) resolveAccounts() error {
	for _, mnemocode := range slices.Sorted(maps.Keys(c.Accounts)) {
		seed, err := c.Accounts[mnemocode].seed(mnemocode)
		if err != nil {
			return fmt.Errorf("account %s: %w", mnemocode, err)
		}
		if cmp.Or(seed.Phone, seed.Email, seed.LoginName) == "" && len(seed.Identities) == 0 {
			c.unusable = append(c.unusable, mnemocode)
		}
		seed.Company = c.code
		manage.Read(&c.effective, &seed.Account, record.Account{})
		c.seeds = append(c.seeds, seed)
	}
	c.Accounts = nil
	return nil
}

func (a *Account) seed(mnemocode string) (seed manage.Seed, err error) {
	if a == nil {
		return seed, errors.New("it is null; leave it out, or write {}")
	}
	account := record.Account{
		Mnemocode:       mnemocode,
		Phone:           a.Phone,
		Email:           a.Email,
		LoginName:       a.Login,
		Locale:          message.Locale(a.Locale),
		Status:          record.StatusActive,
		SecondFactor:    a.SecondFactor,
		MustSetPassword: a.MustSetPassword,
		Question:        a.Question,
	}
	for _, i := range a.Identities {
		account.Identities = append(account.Identities, record.Identity(i))
	}
	seed = manage.Seed{Account: account, Password: a.Password, Answer: a.Answer}
	if err := guest.ResolveInto("password", &seed.Password); err != nil {
		return seed, err
	}
	err = guest.ResolveInto("question", &seed.Answer)
	return seed, err
}

// check refuses settings that don't fit together. Its errors begin with the name of
// the directive.
func (c *Company) check(app *policy.Policy) error {
	return guest.First(
		c.checkCode,
		func() error { return guest.Inside("name", checkName(c.Name)) },
		func() error { return c.checkGiven(app) },
		c.Policy.Check,
		c.checkSenders,
		c.checkFixed,
		c.checkDisclaimers,
		c.checkAccounts,
	)
}

// IsCompanyCode reports whether s can be a company_code.
func IsCompanyCode(s string) bool {
	isOther := func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-')
	}
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, isOther)
}

func (c *Company) checkCode() error {
	if !IsCompanyCode(c.code) {
		return errors.New("its code must be 1 to 64 letters, digits, _ and -")
	}
	return nil
}

// maxName is the most characters of a name. A built-in SMS with a code then fits one SMS.
const maxName = 64

// checkName refuses a name that can't stand in the subject of a mail or as the issuer
// in an authenticator app, which ends at a colon. An empty name is not set.
func checkName(name string) error {
	switch {
	case utf8.RuneCountInString(name) > maxName:
		return fmt.Errorf("it has more than %d characters; shorten it", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(name) != name:
		return errors.New("it has a line break, another control character, or space at its beginning or end; remove it")
	case strings.Contains(name, ":"):
		return errors.New("it has a colon, where authenticator apps end a name; write it without")
	}
	return guest.CheckNoPlaceholder(name, "write the name as users read it")
}

// PasskeySettings returns the company's settings, or the app's, or nil for no passkeys.
func (c *Company) PasskeySettings(app *policy.Policy) *passkey.Settings {
	if s := cmp.Or(c.Passkeys, app.Passkeys); s != nil && !s.Off() {
		return s
	}
	return nil
}

// checkGiven refuses a company that lacks a setting it must choose.
func (c *Company) checkGiven(app *policy.Policy) error {
	captcha := c.NamesCaptcha() || app.NamesCaptcha()
	switch keys := len(c.effective.APIKeys); {
	case keys == 0 && !c.APIKeyOff:
		return errors.New("api_key is missing; add one, or api_key off")
	case keys > 0 && c.APIKeyOff:
		return errors.New("api_key: there are keys and it is off; keep only one of the two")
	case !captcha:
		return errors.New("captcha is missing; choose one, or captcha off")
	}
	return nil
}

// checkSenders refuses recovery methods and second factors that have no sender, and
// what hardened forbids.
func (c *Company) checkSenders() error {
	e := &c.effective
	named := func(m tenant.Method) bool { return slices.Contains(e.Recovery.Methods, m) }
	switch {
	case e.SecondFactor == tenant.SecondFactorRequired && e.SMS == nil:
		return errors.New("second_factor required needs an sms sender; add sms")
	case named(tenant.ByPhone) && e.SMS == nil:
		return errors.New("recovery methods: PHONE needs an sms sender; add sms, or take PHONE out")
	case named(tenant.ByMail) && e.Mail == nil:
		return errors.New("recovery methods: MAIL needs a mail sender; add mail, or take MAIL out")
	case named(tenant.ByMail) && e.Recovery.Link == "":
		return errors.New("recovery methods: MAIL needs a link; add recovery link, or take MAIL out")
	case e.Migrate != nil && e.Hardened:
		return errors.New("password migrate: with hardened, the time of an answer would show which passwords are checked elsewhere; take one of them out")
	case e.Devices.For != 0 && e.Hardened:
		return errors.New("devices: with hardened, a device would show that an account exists; take one of them out, or write devices off")
	case named(tenant.ByQuestion) && e.Hardened:
		return errors.New("recovery methods: QUESTION is never allowed with hardened; take one of them out")
	}
	return nil
}

// checkFixed checks the fixed codes. It needs the inherited settings, because the app may
// set the codes, and the company their length and the region of their phones.
func (c *Company) checkFixed() error {
	o := &c.effective.OTP
	codes := map[string]string{} // by phone
	for i, fixed := range o.Fixed {
		directive := guest.Nth("otp fixed", i)
		if _, ok := typed.OTP(fixed.Code, o.Length); !ok {
			return fmt.Errorf("%s: a code must have %d digits, as otp length says", directive, o.Length)
		}
		for _, given := range fixed.Phones {
			phone := c.effective.ReadPhone(given)
			switch {
			case phone == "":
				return fmt.Errorf("%s: %q is not a possible phone, or could be two; write it as an international number, as in +37060012345", directive, given)
			case codes[phone] == fixed.Code:
				return fmt.Errorf("%s: %s appears twice; remove one", directive, phone)
			case codes[phone] != "":
				return fmt.Errorf("otp fixed: %s has two codes; keep only one", phone)
			}
			codes[phone] = fixed.Code
		}
	}
	return nil
}

func (c *Company) checkDisclaimers() error {
	if len(c.Disclaimers) > 64 {
		return errors.New("disclaimer: there are more than 64, which a client can't accept at once; leave some out")
	}
	seen := map[string]bool{}
	for _, d := range c.Disclaimers {
		switch {
		case !record.Acceptance{Code: d.Code, Version: d.Version}.IsValid():
			return fmt.Errorf("disclaimer %q: its code must have 1 to 64 characters, its version at most 64, and neither control characters", d.Code)
		case seen[d.Code]:
			return fmt.Errorf("disclaimer %s appears twice; remove one", d.Code)
		}
		seen[d.Code] = true
		if err := cmp.Or(guest.CheckNoPlaceholder(d.Code+d.Version, "write its code and version themselves"), d.check()); err != nil {
			return fmt.Errorf("disclaimer %s: %w", d.Code, err)
		}
	}
	return nil
}

// accountDirectives maps the fields of an account to their names in the Caddyfile.
var accountDirectives = map[string]string{
	"primary_phone":    "phone",
	"primary_email":    "email",
	"login_name":       "login",
	"password_hash":    "password",
	"control_question": "question",
	"control_answer":   "question",
	"oauth_identities": "identity",
}

// checkAccounts refuses invalid accounts, and accounts that share a login id or
// identity.
func (c *Company) checkAccounts() error {
	owners := map[string]string{} // by login id or identity
	claim := func(mnemocode, directive, value string) error {
		owner, taken := owners[value]
		owners[value] = mnemocode
		if taken && owner != mnemocode {
			return fmt.Errorf("account %s: %s: account %s has it already; change one of them", mnemocode, directive, owner)
		}
		return nil
	}
	for _, seed := range c.seeds {
		if err := checkSeed(seed); err != nil {
			return fmt.Errorf("account %s: %w", seed.Mnemocode, err)
		}
		for field, id := range record.LoginIDs(seed.Account) {
			if err := claim(seed.Mnemocode, accountDirectives[field], "login "+id); err != nil {
				return err
			}
		}
		for _, i := range seed.Identities {
			if err := claim(seed.Mnemocode, "identity", fmt.Sprintf("identity %d %s", i.Provider, i.Subject)); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkSeed(seed manage.Seed) error {
	a := seed.Account
	if err := cmp.Or(guest.Inside("login", guest.CheckNoPlaceholder(a.LoginName, "write the name that the user types")), guest.Inside("question", asRead(a.Question)),
		guest.Inside("email", guest.CheckNoSecret(a.Email, "write the address itself"))); err != nil {
		return err
	}
	a.AnswerHash = seed.Answer // not hashed yet; only its presence matters here
	if password.LooksLikeHash(seed.Password) {
		a.PasswordHash = seed.Password
		seed.Password = ""
	}
	err := cmp.Or(manage.CheckSecrets(seed.Password, seed.Answer), manage.CheckAccount(a, record.Account{}, password.Argon2id{}))
	if field, ok := errors.AsType[*manage.FieldError](err); ok {
		return fmt.Errorf("%s: %s", cmp.Or(accountDirectives[field.Field], field.Field), field.Message)
	}
	if err != nil {
		return err
	}
	for i, identity := range a.Identities {
		if err := guest.CheckNoSecret(identity.Subject, "write the subject itself"); err != nil {
			return guest.Inside("identity", err)
		}
		same := func(other record.Identity) bool { return other.Provider == identity.Provider }
		if slices.ContainsFunc(a.Identities[:i], same) {
			return fmt.Errorf("identity %d already specified; an account has one of each provider", identity.Provider)
		}
	}
	return nil
}
