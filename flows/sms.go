package flows

import (
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// smsCounters are the budgets that one SMS uses up. The narrowest come first:
// it is theirs that the caller can wait for. A decoy runs dry as an account
// would, but for the company's.
func (at *Attempt) smsCounters(a record.Account, decoyOf string) []record.Counter {
	var counters []record.Counter
	if a.ID != 0 {
		counters = at.accountSMS(strconv.FormatInt(a.ID, 10), a.Phone)
	} else {
		counters = at.accountSMS(decoyBudget(decoyOf), decoyBudget(decoyOf))
	}
	counters = append(counters, at.perAddress("sms-per-address", at.Company.Limits.SMSPerAddress)...)
	company := at.companySMS()
	if a.ID == 0 {
		company = record.Look(company...)
	}
	return append(counters, company...)
}

func (at *Attempt) accountSMS(account, phone string) []record.Counter {
	l := &at.Company.Limits
	return []record.Counter{at.counter("sms-per-account", account, l.SMSPerAccount), at.counter("sms-per-phone", phone, l.SMSPerPhone)}
}

// companySMS is the company's own budget, if it has one.
func (at *Attempt) companySMS() []record.Counter {
	rate := at.Company.Limits.SMSPerCompany
	if rate == (tenant.Rate{}) {
		return nil
	}
	return []record.Counter{at.counter("sms-per-company", "", rate)}
}

// countryAgain is after what time an SMS to a country that is not allowed may be asked
// for again: only an operator can change that.
const countryAgain = 24 * time.Hour

// countrySMS is the budget of a phone's country, if it has one. Where the country is
// not allowed, it is full.
func (at *Attempt) countrySMS(phone string) ([]record.Counter, error) {
	rate := at.Company.Limits.SMSPerCountry
	prefix, allowed := at.Company.Limits.Country(phone)
	if !allowed {
		return nil, &record.Full{Key: at.counter("sms-countries", prefix, rate).Key, Until: at.Now.Add(countryAgain)}
	}
	if rate == (tenant.Rate{}) {
		return nil, nil
	}
	return []record.Counter{at.counter("sms-per-country", prefix, rate)}, nil
}

// decoyBudget is whose budgets a login id uses up that is not told whether an
// account has it.
func decoyBudget(alias string) string { return "decoy/" + alias }
