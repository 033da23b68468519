package record

import (
	"testing"
	"time"
)

func TestAProfileHasTheRoleAndWhatIsAskedFor(t *testing.T) {
	a := Account{Role: "Büro 100%", Email: "a b@example.com", Phone: "+37060012345"}
	all := []ProfileField{ProfileRole, ProfileEmail, ProfilePhone}
	const role = "B%C3%BCro%20100%25"
	for _, test := range []struct {
		account Account
		fields  []ProfileField
		methods AuthMethods
		want    [3]string
	}{
		{a, all, "", [3]string{role, "a%20b@example.com", "+37060012345"}},
		{a, all, "pwd sms mfa", [3]string{role, "a%20b@example.com", "+37060012345"}},
		{a, []ProfileField{ProfilePhone}, "pwd", [3]string{ProfileRole: role, ProfilePhone: "+37060012345"}},
		{a, []ProfileField{ProfileEmail, ProfileRole}, "pwd", [3]string{ProfileRole: role, ProfileEmail: "a%20b@example.com"}},
		{a, nil, "", [3]string{role}},
		{Account{Phone: "+37060012345"}, all, "sms", [3]string{ProfilePhone: "+37060012345"}},
		{Account{Role: "\x00\x1f\x7f\r\n\xff~!"}, all, "", [3]string{"%00%1F%7F%0D%0A%FF~!"}},
		{Account{}, all, "oauth", [3]string{}},
		{Account{}, all, "", [3]string{}},
	} {
		p := NewProfile(test.account, test.fields, time.Time{}, test.methods)
		for f, want := range test.want {
			if got := p.Value(ProfileField(f)); got != want {
				t.Errorf("%v of %q: got %q, want %q", f, p, got, want)
			}
		}
		if got := p.Methods(); got != test.methods {
			t.Errorf("the methods of %q: got %q, want %q", p, got, test.methods)
		}
		if got := p.AuthTime(); !got.IsZero() {
			t.Errorf("the time of %q: got %v", p, got)
		}
		at := time.Unix(1_900_000_000, 0)
		if timed := NewProfile(test.account, test.fields, at, test.methods); !timed.AuthTime().Equal(at) || timed.Methods() != test.methods {
			t.Errorf("with a time: %q", timed)
		}
		if p != "" && test.want == [3]string{} && test.methods == "" {
			t.Errorf("got %q for nothing", p)
		}
	}
}
