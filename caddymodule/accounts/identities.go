package accounts

import (
	"errors"
	"slices"
	"strconv"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

// identity returns the identity that a request names in its path or query.
func identity(provider, subject string) (record.Identity, error) {
	id, err := strconv.Atoi(provider)
	switch {
	case err != nil || id < 1 || id > record.MaxProvider || provider != strconv.Itoa(id):
		return record.Identity{}, &manage.FieldError{Field: "provider_id", Message: "it must be 1 to 5"}
	case !record.IsSubject(subject):
		return record.Identity{}, &manage.FieldError{Field: "subject", Message: "it must be 1 to 255 bytes, without control characters"}
	}
	return record.Identity{Provider: id, Subject: subject}, nil
}

// identityInPath is identity for a path, in which many clients resolve dots.
func (c *Call) identityInPath() (record.Identity, error) {
	subject := c.Param("subject")
	if subject == "." || subject == ".." {
		return record.Identity{}, &manage.FieldError{Field: "subject", Message: "this path can't name it; send oauth_identities with PATCH"}
	}
	return identity(c.Param("provider_id"), subject)
}

func (c *Call) addIdentity() error {
	added, err := c.identityInPath()
	if err != nil {
		return err
	}
	a, _, err := c.Admin.Change(c.Context(), c.mnemocode(), manage.Change{Apply: func(a *record.Account) error {
		for _, i := range a.Identities {
			if i.Provider == added.Provider && i != added {
				return manage.ErrOtherIdentity
			}
		}
		if !slices.Contains(a.Identities, added) {
			a.Identities = append(slices.Clip(a.Identities), added)
		}
		return nil
	}})
	return c.answer(a, err)
}

func (c *Call) removeIdentity() error {
	removed, err := c.identityInPath()
	if err != nil {
		return err
	}
	_, _, err = c.Admin.Change(c.Context(), c.mnemocode(), manage.Change{Apply: func(a *record.Account) error {
		at := slices.Index(a.Identities, removed)
		if at < 0 {
			return manage.ErrNoIdentity
		}
		a.Identities = slices.Delete(slices.Clone(a.Identities), at, at+1)
		return nil
	}})
	return c.Done(err)
}

// one returns the account that a list is asked for by its identity or login id, with no ID if
// there is none. asked is false for a list of several.
func (c *Call) one() (a record.Account, asked bool, err error) {
	byIdentity := c.query.Has("provider_id") || c.query.Has("subject")
	byLoginID := c.query.Has("login_id")
	switch {
	case byIdentity && (byLoginID || slices.ContainsFunc(filters, c.query.Has)):
		return a, true, &manage.FieldError{Field: "subject", Message: "it finds one account; leave out all but provider_id and subject"}
	case byIdentity:
		var wanted record.Identity
		if wanted, err = identity(c.query.Get("provider_id"), c.query.Get("subject")); err == nil {
			a, err = c.Admin.ByIdentity(c.Context(), wanted)
		}
	case byLoginID:
		a, err = c.Admin.ByLoginID(c.Context(), c.LoginID("login_id"))
	}
	if errors.Is(err, record.ErrNotFound) {
		return record.Account{}, true, nil
	}
	return a, byIdentity || byLoginID, err
}
