package accounts

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/routes"
	"github.com/mnemogate/mnemogate/flows/manage"
)

// Key is the key of a backend.
type Key struct {
	// What the backend sends in `Authorization: Bearer <key>`. Several keys are
	// valid at the same time, so that you can rotate them. Each is a placeholder
	// such as {env.NAME} or {file.PATH}, or the SHA-256 as `sha256:` and 64 hex
	// digits. Each start warns of a key that is written in plain, that has fewer
	// than 12 characters, or that opens something else, too. At least one is
	// required.
	Keys []string `json:"keys,omitempty"`

	// The companies whose accounts the key can access. Default: all.
	Companies []string `json:"companies,omitempty"`

	// The rights of the key: `read` accounts, `write` them, only `create` them and send
	// each a first welcome, list and revoke `sessions`, `introspect` tokens, `import`,
	// `export` (with the hashes of secrets), read captured `messages`, `issue` tokens, and
	// issue those with which somebody may `act` as a user. Only `write` includes another
	// right, `create`. Default: `read`.
	May []Right `json:"may,omitempty"`

	name   string
	hashes [][sha256.Size]byte
	weak   []guest.Weakness
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// check refuses mistakes within the key.
func (k *Key) check(name string) error {
	switch {
	case !keyName.MatchString(name):
		return errors.New("its name must be 1 to 64 letters, digits, dots, _ and -")
	case k == nil || len(k.Keys) == 0:
		return errors.New("it has no key; write {env.NAME}, {file.PATH} or sha256:<hex>")
	case k.Companies != nil && len(k.Companies) == 0:
		return errors.New("companies: the list is empty; name a company, or leave it out to allow all")
	case k.May != nil && len(k.May) == 0:
		return errors.New("may: the list is empty; name a right, or leave it out to allow read")
	}
	for i, right := range k.May {
		if !slices.Contains(Rights, right) {
			return fmt.Errorf("may: %q is unknown; choose from read, write, create, sessions, introspect, import, export, messages, issue and act", string(right))
		}
		if slices.Contains(k.May[:i], right) {
			return fmt.Errorf("may: %s appears twice; remove one", right)
		}
	}
	return nil
}

// provision resolves the keys and replaces them with their hashes. Its errors begin
// with the name of the option.
func (k *Key) provision(name string, a *app.App) error {
	k.name = name
	option := "key " + name
	for _, code := range k.Companies {
		if a.Companies[code] == nil {
			return fmt.Errorf("%s: company: %s is not configured; add it, or leave it out", option, code)
		}
	}
	for _, given := range k.Keys {
		key := given
		if err := guest.ResolveInto(option, &key); err != nil {
			return err
		}
		hash, err := guest.HashKey(key)
		if err != nil {
			return guest.Inside(option, err)
		}
		k.hashes = append(k.hashes, hash)
		if key == given && !guest.IsHashedKey(key) {
			k.weak = append(k.weak, guest.Weakness{
				Message: "the key stands in the configuration, which the admin endpoint shows and Caddy saves",
				Advice:  "write {env.NAME}, {file.PATH} or its sha256:<hex>",
			})
		}
		if guest.IsShortKey(key) {
			k.weak = append(k.weak, guest.ShortKey)
		}
	}
	k.Keys = nil
	return nil
}

// has reports whether the key can access a company. A nil key, which is that of the
// admin endpoint, can access all.
func (k *Key) has(code string) bool {
	return k == nil || len(k.Companies) == 0 || slices.Contains(k.Companies, code)
}

func (k *Key) may(right Right) bool {
	return slices.Contains(k.May, right) || right == Read && len(k.May) == 0
}

// keyOf returns the key with a hash, or nil if there is none. It takes the same time
// for all keys.
func (h *Handler) keyOf(hash [sha256.Size]byte) (found *Key) {
	for _, k := range h.Keys {
		for _, other := range k.hashes {
			if subtle.ConstantTimeCompare(hash[:], other[:]) == 1 {
				found = k
			}
		}
	}
	return found
}

// allows is an app.Keys.
func (h *Handler) allows(hash [sha256.Size]byte, right, company string) bool {
	k := h.keyOf(hash)
	return k != nil && k.may(Right(right)) && k.has(company)
}

// admit returns the key of a request. It refuses browsers, which must never hold a
// key.
func (h *Handler) admit(c *Call) (*Key, error) {
	if len(c.Header["Origin"]) > 0 {
		return nil, &Error{Status: http.StatusForbidden, Message: "requests of web pages, which have an Origin, are refused: this API is for backends"}
	}
	var sent []string
	challenge := bodies.Challenge
	if key, ok := bearer(c.Header["Authorization"]); ok {
		sent, challenge = []string{key}, bodies.Challenge+`, error="invalid_token"`
	} else if _, oauth := routes.Match(introspectPattern, c.path); oauth { // OAuth's clients call it
		sent, challenge = c.clientSecret()
	}
	if len(sent) == 0 {
		return nil, &Error{Status: http.StatusUnauthorized, Message: "send the key in one Authorization header: Bearer <key>"}
	}
	for _, key := range sent {
		c.hash = sha256.Sum256([]byte(key))
		if found := h.keyOf(c.hash); found != nil {
			return found, nil
		}
	}
	service, err := c.App.Service(c.Context())
	if err != nil { // the error names the store, which strangers must not learn
		return nil, &Error{Status: http.StatusServiceUnavailable, Message: "a store can't be reached; try again later", Cause: unreachable(err)}
	}
	if err := manage.CountWrongKey(c.Context(), service.Manager, c.Address); err != nil {
		return nil, err
	}
	c.W.Header().Set("WWW-Authenticate", challenge)
	return nil, &Error{Status: http.StatusUnauthorized, Message: "the key is wrong; send one of the keys in mnemogate_accounts"}
}

// bearer returns the credentials of an Authorization header, without checking them.
func bearer(lines []string) (key string, ok bool) {
	if len(lines) != 1 {
		return "", false
	}
	scheme, key, _ := strings.Cut(lines[0], " ")
	return key, strings.EqualFold(scheme, "Bearer") && key != ""
}
