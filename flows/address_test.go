package flows_test

import (
	"testing"

	"github.com/mnemogate/mnemogate/flows"
)

// limited is an address that has failed as often as it may.
func (b *bench) limited() string {
	b.t.Helper()
	const address = "203.0.113.7"
	for range b.company.Limits.FailuresPerAddress.N {
		_, err := b.serveAs(code, address, "auth/login", "", object{"login_id": "nobody@example.com"})
		wantError(b.t, err, flows.ErrLoginIDNotFound)
	}
	return address
}

// Whatever else a request would be refused for, such an address is told of
// itself alone.
func TestALimitedAddressLearnsNothing(t *testing.T) {
	b := benchWithCodes(t)
	address := b.limited()
	refused := func(what, path, token string, body object) {
		t.Helper()
		sent := b.sms.count()
		_, err := b.serveAs(code, address, path, token, body)
		wantError(t, err, flows.ErrRestricted)
		if got, want := refusal(err).RetryAfter, b.company.Limits.FailuresPerAddress.Per; got != want {
			t.Errorf("%s: got Retry-After %v, want the address's, %v", what, got, want)
		}
		if b.sms.count() > sent {
			t.Errorf("%s: an SMS was sent", what)
		}
	}
	login := object{"login_id": email}
	refused("good", "auth/login", "", login)
	refused("unknown", "auth/login", "", object{"login_id": "nobody@example.com"})
	b.company.Hardened = true
	refused("decoy", "auth/login", "", object{"login_id": "nobody@example.com"})
	b.company.Hardened = false

	token, otp := b.awaiting()
	b.company.Disclaimers = []flows.Disclaimer{{Code: "terms", Version: "1"}}
	refused("right code without the disclaimers", "auth/checkotp", token, object{"otp": otp})
	b.company.Disclaimers = nil
	refused("wrong code", "auth/checkotp", token, object{"otp": wrongCode(otp)})
	refused("right code", "auth/checkotp", token, object{"otp": otp})
	refused("right backup code", "auth/checkotp", token, object{"backup_code": "ABCDE23456"})
	b.must("auth/checkotp", token, object{"otp": otp}) // of another address: it was not spent

	for range b.company.Limits.WrongCodes.N {
		token, otp := b.awaiting()
		b.wrong(flows.ErrOTPInvalid, "auth/checkotp", token, object{"otp": wrongCode(otp)})
	}
	refused("codes are locked", "auth/login", "", login)
	for status := range statuses {
		b.status(status)
		refused("account is "+string(status), "auth/login", "", login)
	}
}

func TestWhatIsRefusedForItsTokenSpendsNoCode(t *testing.T) {
	b := benchWithCodes(t)
	b.addCompany("other")
	token, otp := b.awaiting()
	body := object{"otp": otp}
	b.wrong(flows.ErrSessionInvalid, "auth/recovery/checkotp", token, body)
	_, err := b.serveAs("other", "192.0.2.1", "auth/checkotp", token, body)
	wantError(t, err, flows.ErrTokenInvalid)
	b.wrong(flows.ErrValidation, "auth/checkotp", token, object{"otp": otp, "accept_disclaimers": 7})
	b.wrong(flows.ErrTokenInvalid, "auth/checkotp", "mgs_x", object{"otp": 7}) // the token comes first
	b.must("auth/checkotp", token, body)

	token = b.sessionIn(flows.RecoveryOTP)
	body = object{"otp": b.sms.last(t).Code}
	b.wrong(flows.ErrSessionInvalid, "auth/checkotp", token, body)
	b.must("auth/recovery/checkotp", token, body)
}
