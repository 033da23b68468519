package accounts

import (
	"maps"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/flows/manage"
)

// issueToken issues a token. With an actor it needs the right act, and otherwise issue.
func (c *Call) issueToken() error {
	data, err := c.body()
	if err != nil {
		return err
	}
	wish, err := parseToken(data)
	if err != nil {
		return err
	}
	right := Issue
	if wish.Actor != "" {
		right = Act
	}
	if err := c.require(right); err != nil {
		return err
	}
	token, t, err := c.Admin.IssueToken(c.Context(), c.mnemocode(), wish)
	if err != nil {
		return err
	}
	view := api.TokenOf(t)
	view.Token = token
	return c.Reply(http.StatusCreated, view, nil)
}

// parseToken reads what a token is for.
func parseToken(data []byte) (wish manage.TokenWish, err error) {
	values, err := parseObject(data)
	if err != nil {
		return wish, err
	}
	fields := map[string]any{
		"name": &wish.Name, "paths": &wish.Paths, "methods": &wish.Methods, "expires_in": &wish.ExpiresIn,
		"actor": &wish.Actor, "reason": &wish.Reason,
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		to, known := fields[name]
		if !known {
			return wish, noField(name)
		}
		if err := json.Unmarshal(values[name], to); err != nil {
			return wish, &manage.FieldError{Field: name, Message: "it must be a text, a list of texts for paths and methods, and a whole number for expires_in"}
		}
	}
	if err := paths.CheckToken(wish.Paths); err != nil {
		return wish, &manage.FieldError{Field: "paths", Message: err.Error()}
	}
	return wish, nil
}

// tokens lists the tokens that the key may see: with the right act alone, those with which
// somebody acts as the user.
func (c *Call) tokens() error {
	found, err := c.Admin.IssuedTokens(c.Context(), c.mnemocode())
	list := api.Tokens{Tokens: []api.Token{}}
	for _, t := range found {
		if t.Actor != "" || c.May(Issue) {
			list.Tokens = append(list.Tokens, api.TokenOf(t))
		}
	}
	return c.Reply(http.StatusOK, list, err)
}

func (c *Call) removeToken() error {
	return c.Done(c.Admin.RemoveToken(c.Context(), c.mnemocode(), c.Param("token"), !c.May(Issue)))
}
