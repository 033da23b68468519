package tenant

import (
	"cmp"
	"slices"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// errNoRecovery means that the company has no method that a client could offer.
var errNoRecovery = &wire.Refusal{Err: wire.ErrMethodRestricted, Message: "This company has no recovery. Do not offer it."}

// RecoveryMethod chooses how an account is recovered: by the wanted method or, if wanted
// is empty, by the first allowed method that the account can use.
func (c *Company) RecoveryMethod(wanted Method, a record.Account) (Method, error) {
	if len(c.Recovery.Methods) == 0 {
		return wanted, errNoRecovery
	}
	if wanted != "" {
		if !slices.Contains(c.Recovery.Methods, wanted) {
			return wanted, wire.ErrMethodRestricted
		}
		return wanted, notSet(wanted, a)
	}
	for _, m := range c.Recovery.Methods {
		if c.canUse(m, a) {
			return m, nil
		}
	}
	first := c.Recovery.Methods[0]
	if err := notSet(first, a); err != nil {
		return first, &wire.Refusal{Err: wire.CodeOf(err), Message: "The account has nothing by which it could be recovered. Only an operator can help."}
	}
	return first, nil
}

// canUse reports whether an account can use a method, if no budget is used up.
func (c *Company) canUse(m Method, a record.Account) bool {
	return notSet(m, a) == nil && (m != ByPhone || c.SendsCodesTo(a.Phone))
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
	if len(methods) == 0 {
		return record.Account{}, wanted, errNoRecovery
	}
	wanted = cmp.Or(wanted, methods[0])
	if !slices.Contains(methods, wanted) {
		return record.Account{}, wanted, wire.ErrMethodRestricted
	}
	if a.ID == 0 || CheckStatus(a) != nil || notSet(wanted, a) != nil || c.isBothFactors(wanted, a) {
		return record.Account{CompanyGeneration: a.CompanyGeneration}, wanted, nil
	}
	return a, wanted, nil
}

// isBothFactors reports whether the phone that a method needs is the account's second factor,
// too. With hardened, one phone must not serve as both.
func (c *Company) isBothFactors(m Method, a record.Account) bool {
	return m == ByPhone && c.NeedsSecondFactor(a)
}

// CanRecover reports whether the owner of an account can recover it by any method.
func (c *Company) CanRecover(a record.Account) bool {
	return slices.ContainsFunc(c.Recovery.Methods, func(m Method) bool {
		return c.canUse(m, a) && (!c.Hardened || m != ByQuestion && !c.isBothFactors(m, a))
	})
}
