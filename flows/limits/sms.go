package limits

import (
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// SMSCounters are the budgets that one SMS uses up, for charging. The narrowest come first:
// it is theirs that the caller can wait for. A decoy runs dry as an account
// would, but for the company's.
func (at *Attempt) SMSCounters(a record.Account, decoyOf string) []record.Counter {
	var counters []record.Counter
	if a.ID != 0 {
		counters = at.AccountSMS(strconv.FormatInt(a.ID, 10), a.Phone)
	} else {
		counters = at.AccountSMS(DecoyBudget(decoyOf), DecoyBudget(decoyOf))
	}
	at.counted = append(at.counted, addressSMS)
	counters = append(counters, at.perAddress(addressSMS, at.Company.Limits.SMSPerAddress)...)
	company := at.CompanySMS()
	if a.ID == 0 {
		company = record.Look(company...)
	}
	return append(counters, company...)
}

// AccountSMS are the budgets of an account and its phone.
func (at *Attempt) AccountSMS(account, phone string) []record.Counter {
	l := &at.Company.Limits
	return append(at.Budget("sms-per-account", account, l.SMSPerAccount), at.PhoneSMS(phone)...)
}

// PhoneSMS is the budget of a phone.
func (at *Attempt) PhoneSMS(phone string) []record.Counter {
	rate := at.Company.Limits.SMSPerPhone
	if rate == tenant.Unlimited {
		return nil
	}
	return []record.Counter{personalCounter(at.Keys, at.Company.Code, "sms-per-phone", phone, rate)}
}

// CompanySMS is the company's own budget.
func (at *Attempt) CompanySMS() []record.Counter {
	return at.Budget("sms-per-company", "", at.Company.Limits.SMSPerCompany)
}

// countryAgain is after what time an SMS to a country that is not allowed may be asked
// for again: only an operator can change that.
const countryAgain = 24 * time.Hour

// CountrySMS is the budget of a phone's country. Where the country is
// not allowed, it is full.
func (at *Attempt) CountrySMS(phone string) ([]record.Counter, error) {
	rate := at.Company.Limits.SMSPerCountry
	prefix, allowed := at.Company.Limits.Country(phone)
	if !allowed {
		return nil, &record.Full{Key: at.Counter("sms-countries", prefix, rate).Key, Until: at.Now.Add(countryAgain)}
	}
	return at.Budget("sms-per-country", prefix, rate), nil
}

// DecoyBudget is whose budgets a login id uses up that is not told whether an
// account has it.
func DecoyBudget(loginIDHash string) string { return "decoy/" + loginIDHash }
