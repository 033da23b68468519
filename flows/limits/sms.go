package limits

import (
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// CountSMS returns the counters to charge for one SMS, except those of the company and of
// the country. The account may be empty, for none. The narrowest come first, because the
// caller is told to wait for the first full one.
func (at *Attempt) CountSMS(account, phone string) []record.Counter {
	at.counted = append(at.counted, addressSMS)
	counters := at.PhoneSMS(phone)
	if account != "" {
		counters = at.AccountSMS(account, phone)
	}
	return append(counters, at.perAddress(addressSMS, at.Company.Limits.SMSPerAddress)...)
}

// AccountSMS returns the budgets of an account and its phone.
func (at *Attempt) AccountSMS(account, phone string) []record.Counter {
	l := &at.Company.Limits
	return append(at.budget("limit.sms_account", account, l.SMSPerAccount), at.PhoneSMS(phone)...)
}

// PhoneSMS returns the budget of a phone.
func (at *Attempt) PhoneSMS(phone string) []record.Counter {
	return at.personalBudget("limit.sms_phone", phone, at.Company.Limits.SMSPerPhone)
}

// personalBudget is budget for a phone or an email. The key does not reveal it.
func (at *Attempt) personalBudget(name, of string, rate tenant.Rate) []record.Counter {
	if rate == tenant.Unlimited {
		return nil
	}
	return []record.Counter{personalCounter(at.Keys, at.Company.Code, name, of, rate)}
}

// MailsTo returns the budget of codes to an email that is not proven yet. All who ask for them
// share it. The email is normalised as a login id.
func (at *Attempt) MailsTo(email string) []record.Counter {
	return at.personalBudget("limit.mails", email, at.Company.Limits.MailsPerAccount)
}

// ContactMails returns the budgets of a mail to someone who has no account yet.
func (at *Attempt) ContactMails(email string) []record.Counter {
	return append(at.MailsTo(email), at.perAddress("limit.mails", at.Company.Limits.MailsPerAccount)...)
}

// AccountMails returns the budget of an account's mails of a type. Each has its own, so that
// recoveries, which strangers can begin, use up no other.
func (at *Attempt) AccountMails(account, mail string) []record.Counter {
	return at.budget("limit.mails", account+"/"+mail, at.Company.Limits.MailsPerAccount)
}

// CompanySMS returns the budget of the whole company.
func (at *Attempt) CompanySMS() []record.Counter {
	return at.budget("limit.sms_company", "", at.Company.Limits.SMSPerCompany)
}

// countryAgain is how long a client should wait before it asks again for an SMS to a
// country that is not allowed. Only an operator can allow it.
const countryAgain = 24 * time.Hour

// CountrySMS returns the budget of a phone's country. It returns a FullError if the
// country is not allowed, or no gateway serves the phone.
func (at *Attempt) CountrySMS(phone string) ([]record.Counter, error) {
	rate := at.Company.Limits.SMSPerCountry
	prefix, _ := at.Company.Limits.Country(phone)
	if !at.Company.SendsTo(phone) {
		return nil, &record.FullError{Key: at.Counter("limit.sms_country_unlisted", prefix, rate).Key, Until: at.Now.Add(countryAgain)}
	}
	return at.budget("limit.sms_country", prefix, rate), nil
}

// DecoyBudget returns the name of a login id's budgets, for clients that must not learn
// whether it has an account.
func DecoyBudget(loginIDHash string) string { return "decoy/" + loginIDHash }
