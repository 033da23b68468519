package integration

import (
	"net/url"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Contract, section 19: phones, emails and codes are read alike in the Caddyfile, in the
// accounts API and in a login, as people of many countries write them.
func TestWhatPeopleOfManyCountriesType(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: `
		captcha off
		phone_region JP
		otp {
			fixed "１２３ ４５６" ０９０ー１２３４ー５６７８
		}
		account hanako {
			phone ０９０ー１２３４ー５６７８
		}`})
	for _, phone := range []string{"09012345678", "０９０－１２３４－５６７８", "090ｰ1234ｰ5678", "+81(0)90 1234 5678", "\u200e+٨١٩٠١٢٣٤٥٦٧٨"} {
		a := s.post("auth/login", "", fields{"login_id": phone}).wantState(record.CheckOTP)
		s.wantProfile(s.post("auth/checkotp", a.token(), fields{"otp": "१२३-४५६"}).wantState(record.Authorized), "hanako")
	}
	for _, nothing := range []string{" ", "\u200b", "\u00ad\u3000\ufeff"} {
		s.post("auth/login", "", fields{"login_id": nothing}).want(wire.ErrValidation)
		s.post("auth/checkcredentials", "", fields{"login_id": nothing, "password": "x"}).want(wire.ErrValidation)
		s.post("auth/recovery/recover", "", fields{"login_id": nothing, "captcha_response": "x"}).want(wire.ErrValidation)
		s.admin("GET", "explain?login_id="+url.QueryEscape(nothing), nil).wantRefused(400, "login_id")
	}
	// The joiner in this domain tells it from another one, which may belong to somebody else.
	for typed, to := range map[string]string{"a@نامه\u200cای.example": "a@نامه\u200cای.example", "a\u200b@例え。example": "a@例え.example"} {
		s.admin("POST", "accounts", fields{"primary_email": typed, "profile_mnemocode": url.PathEscape(to)}).wantStatus(201)
		s.post("auth/recovery/recover", "", fields{"login_id": typed, "method": "MAIL", "captcha_response": "x"}).wantStatus(200)
		if got := s.sms.last("recovery.link", "to"); got != to {
			t.Errorf("the mail for %q goes to %q, want %q", typed, got, to)
		}
	}
}
