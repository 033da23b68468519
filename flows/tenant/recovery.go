package tenant

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// RecoveryMethod chooses how an account is recovered: by the wanted method or, where
// none is named, by the first allowed one that the account can use.
func (c *Company) RecoveryMethod(wanted Method, a record.Account) (Method, error) {
	if wanted != "" {
		if !slices.Contains(c.Recovery.Methods, wanted) {
			return wanted, wire.ErrMethodRestricted
		}
		return wanted, notSet(wanted, a)
	}
	for _, m := range c.Recovery.Methods {
		if notSet(m, a) == nil {
			return m, nil
		}
	}
	if len(c.Recovery.Methods) == 0 {
		return "", wire.ErrMethodRestricted
	}
	return c.Recovery.Methods[0], notSet(c.Recovery.Methods[0], a)
}

// notSet tells what the account lacks for a method, nil if nothing.
func notSet(m Method, a record.Account) error {
	switch {
	case m == ByPhone && a.Phone == "":
		return wire.ErrPhoneNotSet
	case m == ByMail && a.Email == "":
		return wire.ErrEmailNotSet
	case m == ByQuestion && (a.Question == "" || a.AnswerHash == ""):
		return wire.ErrQuestionNotSet
	}
	return nil
}

// HardenedMethod chooses a method without regard to the account, which comes
// back empty unless it can be recovered so.
func (c *Company) HardenedMethod(wanted Method, a record.Account) (record.Account, Method, error) {
	methods := slices.DeleteFunc(slices.Clone(c.Recovery.Methods), func(m Method) bool { return m == ByQuestion })
	if wanted == "" && len(methods) > 0 {
		wanted = methods[0]
	}
	if !slices.Contains(methods, wanted) {
		return record.Account{}, wanted, wire.ErrMethodRestricted
	}
	bothFactors := wanted == ByPhone && c.NeedsSecondFactor(a) // one phone must not be both
	if a.ID == 0 || Admitted(a) != nil || notSet(wanted, a) != nil || bothFactors {
		return record.Account{CompanyGeneration: a.CompanyGeneration}, wanted, nil
	}
	return a, wanted, nil
}

// Admitted tells whether the account's status lets it in.
func Admitted(a record.Account) error {
	switch a.Status {
	case record.StatusActive:
		return nil
	case record.StatusRestricted:
		return wire.ErrUserRestricted
	case record.StatusClosed:
		return wire.ErrUserClosed
	default: // denied, and whatever a newer version may have written
		return wire.ErrUserDenied
	}
}
