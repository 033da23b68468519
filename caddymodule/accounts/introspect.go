package accounts

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
)

// introspect reports the state of a token (RFC 7662). The token is sent in a form,
// as in the RFC, or as JSON.
func (c *Call) introspect() error {
	body := c.form
	if body == nil {
		var err error
		if body, err = c.body(); err != nil {
			return err
		}
	}
	token, err := tokenIn(c.Header, body)
	if err != nil {
		return err
	}
	answer, err := c.Admin.Introspect(c.Context(), token)
	return c.Reply(http.StatusOK, answer, err)
}

// clientSecret returns the key as OAuth's clients send it to introspect, with any client id:
// client_secret_basic or client_secret_post (RFC 6749, section 2.3.1). Of the former, many
// clients do not percent-encode the key, so there are two ways to read it. It also returns
// the scheme's challenge.
func (c *Call) clientSecret() (keys []string, challenge string) {
	if _, secret, basic := c.BasicAuth(); basic && len(c.Header["Authorization"]) == 1 {
		decoded, _ := url.QueryUnescape(secret) // "" is no key
		return []string{secret, decoded}, `Basic realm="mnemogate"`
	}
	if len(c.Header["Authorization"]) > 0 || c.Method != http.MethodPost {
		return nil, bodies.Challenge
	}
	c.form, _ = c.body()                      // introspect reads it again, and tells of an error
	form, _ := url.ParseQuery(string(c.form)) // introspect refuses a malformed one
	return form["client_secret"], bodies.Challenge
}

// tokenIn returns the token in a body. It ignores other members.
func tokenIn(header http.Header, body []byte) (string, error) {
	mediaType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(mediaType)) {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "", &Error{Status: http.StatusBadRequest, Message: "the form is malformed; percent-encode its values"}
		}
		if tokens := form["token"]; len(tokens) == 1 && tokens[0] != "" {
			return tokens[0], nil
		}
	case "application/json":
		var sent struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(body, &sent); err != nil {
			return "", &Error{Status: http.StatusBadRequest, Field: "token", Message: `send an object like {"token":"mgs_…"}`}
		}
		if sent.Token != "" {
			return sent.Token, nil
		}
	default:
		return "", &Error{Status: http.StatusUnsupportedMediaType, Message: "send the token in a form (application/x-www-form-urlencoded) or as JSON (application/json)"}
	}
	return "", &Error{Status: http.StatusBadRequest, Field: "token", Message: "send one token"}
}
