package accounts

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/captured"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// LoginID returns the login id in a parameter of the query. In a query, + stands for a space, and
// many clients forget to escape the + of a phone or an email. Neither can contain a
// space, so LoginID reads a space in them as a +.
func (c *Call) LoginID(parameter string) string {
	const plus = "\x00"
	query, _ := url.ParseQuery(strings.ReplaceAll(c.URL.RawQuery, "+", "%00")) // parseQuery has checked that it is well-formed
	id := query.Get(parameter)
	if digits, ok := strings.CutPrefix(id, plus); ok && strings.IndexAny(digits, "0123456789") == 0 {
		id = "+" + digits
	}
	if strings.Contains(id, "@") {
		id = strings.ReplaceAll(strings.Trim(id, plus), plus, "+")
	}
	return strings.ReplaceAll(id, plus, " ")
}

func (c *Call) companies() error {
	companies := []string{}
	for code := range c.App.Sorted() {
		if c.key.has(code) {
			companies = append(companies, code)
		}
	}
	return c.Reply(http.StatusOK, api.Companies{Companies: companies}, nil)
}

func (c *Call) create() error {
	change, err := c.wanted(changeNew)
	if err != nil {
		return err
	}
	for _, at := range change.Verified { // a key that only creates accounts must prove what it says
		if !at.IsZero() {
			if err := c.require(Write); err != nil {
				return err
			}
		}
	}
	a, err := c.Admin.Create(c.Context(), change)
	if err != nil {
		return err
	}
	c.W.Header().Set("ETag", api.ETag(a))
	c.W.Header().Set("Location", c.root+c.Admin.Company.Code+"/accounts/"+api.PathEscape(a.Mnemocode))
	return c.Reply(http.StatusCreated, c.view(a), nil)
}

// wanted reads the change in the request. With rules=user its password must follow
// the rules for users, so it can't be a hash.
func (c *Call) wanted(kind changeKind) (manage.Change, error) {
	rules := c.query.Get("rules")
	if c.query.Has("rules") && rules != "user" {
		return manage.Change{}, &manage.FieldError{Field: "rules", Message: "it must be user, or left out"}
	}
	data, err := c.body()
	if err != nil {
		return manage.Change{}, err
	}
	return parseChange(data, kind, rules == "user")
}

// answer writes the account, unless err is an error. A key without the right to read
// gets only the mnemocode and the version.
func (c *Call) answer(a record.Account, err error) error {
	if err == nil {
		c.W.Header().Set("ETag", api.ETag(a))
	}
	if err != nil || !c.May(Read) {
		return c.Reply(http.StatusOK, api.Changed{Mnemocode: a.Mnemocode}, err)
	}
	public, err := c.Admin.PublicFailures(c.Context(), c.Admin.Company, a)
	if c.Method != http.MethodGet {
		err = nil // the change was made
	}
	return c.Reply(http.StatusOK, c.view(a, public...), err)
}

func (c *Call) show() error {
	a, err := c.Admin.ByMnemocode(c.Context(), c.mnemocode())
	return c.answer(a, err)
}

func (c *Call) change() error {
	change, err := c.wanted(changePatch)
	if err != nil {
		return err
	}
	change.Match = c.ifMatch()
	a, _, err := c.Admin.Change(c.Context(), c.mnemocode(), change)
	return c.answer(a, c.ifMissing(err))
}

func (c *Call) delete() error {
	err := c.Admin.Delete(c.Context(), c.mnemocode(), c.ifMatch())
	if err == nil || err == manage.ErrRevocationPending {
		captured.Forget(c.Admin.Company.Code, c.mnemocode())
	}
	return c.Done(c.ifMissing(err))
}

// ifMatch returns the condition of the header If-Match (RFC 9110, section 13.1.1), or nil
// if there is none.
func (c *Call) ifMatch() func(record.Account) bool {
	var tags []string
	for _, line := range c.Header.Values("If-Match") {
		for tag := range strings.SplitSeq(line, ",") { // an ETag of ours has no comma
			tags = append(tags, strings.TrimSpace(tag))
		}
	}
	if tags == nil {
		return nil
	}
	return func(a record.Account) bool { return slices.Contains(tags, "*") || slices.Contains(tags, api.ETag(a)) }
}

// ifMissing returns the error of a request whose account does not exist: with If-Match, no
// version of it matches.
func (c *Call) ifMissing(err error) error {
	if errors.Is(err, record.ErrNotFound) && c.Header.Values("If-Match") != nil {
		return manage.ErrVersion
	}
	return err
}

func (c *Call) backupCodes() error {
	codes, err := c.Admin.NewBackupCodes(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, api.BackupCodes{Codes: codes}, err)
}

func (c *Call) welcome() error {
	return c.Reply(http.StatusAccepted, struct{}{}, c.Admin.Welcome(c.Context(), c.mnemocode(), !c.May(Write)))
}

func (c *Call) unlock() error {
	a, err := c.Admin.Unlock(c.Context(), c.mnemocode())
	return c.answer(a, err)
}

func (c *Call) list() error {
	limit, err := limitOf(c.query)
	if err != nil {
		return err
	}
	match, err := searchOf(c.query)
	if err != nil {
		return err
	}
	p := api.Page{Accounts: []api.Account{}}
	one, asked, err := c.one()
	if err != nil {
		return err
	}
	var accounts []record.Account
	switch after := c.query.Get("after"); {
	case one.ID != 0:
		accounts = []record.Account{one}
	case asked:
	case match != record.Match{}:
		accounts, err = c.Admin.Search(c.Context(), match, after, limit+1)
	default:
		accounts, err = c.Admin.List(c.Context(), after, limit+1)
	}
	if err != nil {
		return err
	}
	if len(accounts) > limit {
		accounts = accounts[:limit]
		p.Next = accounts[limit-1].Mnemocode
	}
	for _, a := range accounts {
		p.Accounts = append(p.Accounts, c.view(a))
	}
	return c.Reply(http.StatusOK, p, nil)
}

// filters are the query parameters that select accounts.
var filters = []string{"status", "contains", "role", "locked", "no_second_factor", "updated_since", "password_set"}

func searchOf(query url.Values) (match record.Match, err error) {
	part, set := query.Get("contains"), query.Get("password_set")
	match = record.Match{
		Status: record.Status(query.Get("status")), Part: part, Role: query.Get("role"),
		Failed: query.Get("locked") == "true", NoSecondFactor: query.Get("no_second_factor") == "true",
	}
	if query.Has("password_set") {
		match.PasswordSet = new(set == "true")
	}
	if query.Has("updated_since") {
		match.UpdatedSince, err = time.Parse(time.RFC3339, query.Get("updated_since"))
	}
	switch {
	case query.Has("locked") && !match.Failed:
		err = &manage.FieldError{Field: "locked", Message: "it must be true, or left out"}
	case query.Has("no_second_factor") && !match.NoSecondFactor:
		err = &manage.FieldError{Field: "no_second_factor", Message: "it must be true, or left out"}
	case query.Has("password_set") && set != "true" && set != "false":
		err = &manage.FieldError{Field: "password_set", Message: "it must be true or false"}
	case err != nil:
		err = &manage.FieldError{Field: "updated_since", Message: "it must be a time as in updated_at (RFC 3339), such as 2026-11-22T15:04:05Z"}
	case query.Has("login_id") && slices.ContainsFunc(filters, query.Has):
		err = &manage.FieldError{Field: "login_id", Message: "it finds one account; leave out " + strings.Join(filters, ", ")}
	case query.Has("role") && match.Role == "":
		err = &manage.FieldError{Field: "role", Message: "it is empty; write a role, or leave it out"}
	case query.Has("status") && !slices.Contains(record.Statuses, match.Status):
		err = &manage.FieldError{Field: "status", Message: "it must be active, restricted, closed or denied"}
	case query.Has("contains") && (typed.LoginIDPart(part) == "" || !utf8.ValidString(part) || utf8.RuneCountInString(part) > 254):
		err = &manage.FieldError{Field: "contains", Message: "it must be a part of a login id, of 1 to 254 characters in UTF-8"}
	}
	return match, err
}

func limitOf(query url.Values) (int, error) {
	if !query.Has("limit") {
		return api.DefaultPage, nil
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit < 1 || limit > api.MaxPage {
		return 0, &manage.FieldError{Field: "limit", Message: fmt.Sprintf("it must be 1 to %d", api.MaxPage)}
	}
	return limit, nil
}
