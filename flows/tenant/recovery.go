package tenant

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// RecoveryMethod chooses how an account is recovered: by the wanted method or, if wanted
// is empty, by the first allowed method that the account can use.
func (c *Company) RecoveryMethod(wanted Method, a record.Account) (Method, error) {
	if wanted != "" {
		if !slices.Contains(c.Recovery.Methods, wanted) {
			return wanted, wire.ErrMethodRestricted
		}
		return wanted, notSet(wanted, a)
	}
	for _, m := range c.Recovery.Methods {
		if notSet(m, a) == nil && (m != ByPhone || c.SendsCodesTo(a.Phone)) {
			return m, nil
		}
	}
	if len(c.Recovery.Methods) == 0 {
		return "", wire.ErrMethodRestricted
	}
	return c.Recovery.Methods[0], notSet(c.Recovery.Methods[0], a)
}

// notSet returns the error for what the account lacks to use a method, or nil.
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

// BlindRecoveryMethod chooses a method without looking at the account, so that the choice
// reveals nothing about it. The returned account is empty unless the method can recover
// it.
func (c *Company) BlindRecoveryMethod(wanted Method, a record.Account) (record.Account, Method, error) {
	methods := slices.DeleteFunc(slices.Clone(c.Recovery.Methods), func(m Method) bool { return m == ByQuestion })
	if wanted == "" && len(methods) > 0 {
		wanted = methods[0]
	}
	if !slices.Contains(methods, wanted) {
		return record.Account{}, wanted, wire.ErrMethodRestricted
	}
	bothFactors := wanted == ByPhone && c.NeedsSecondFactor(a) // one phone must not serve as both
	if a.ID == 0 || CheckStatus(a) != nil || notSet(wanted, a) != nil || bothFactors {
		return record.Account{CompanyGeneration: a.CompanyGeneration}, wanted, nil
	}
	return a, wanted, nil
}

// CanRecover reports whether the owner of an account can recover it by any method.
func (c *Company) CanRecover(a record.Account) bool {
	if !c.Hardened {
		_, err := c.RecoveryMethod("", a)
		return err == nil
	}
	return slices.ContainsFunc(c.Recovery.Methods, func(m Method) bool {
		found, _, err := c.BlindRecoveryMethod(m, a)
		return err == nil && found.ID != 0
	})
}
