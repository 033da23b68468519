package accounts

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"
)

// introspect reports the state of a token (RFC 7662). The token is sent in a form,
// as in the RFC, or as JSON.
func (c *Call) introspect() error {
	body, err := c.body()
	if err != nil {
		return err
	}
	token, err := tokenIn(c.Header, body)
	if err != nil {
		return err
	}
	answer, err := c.admin.Introspect(c.ctx, token)
	return c.reply(http.StatusOK, answer, err)
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
