package record

import "testing"

func TestAProfileHasWhatIsAskedFor(t *testing.T) {
	a := Account{Role: "Büro 100%", Email: "a b@example.com", Phone: "+37060012345"}
	all := []ProfileField{ProfileRole, ProfileEmail, ProfilePhone}
	for _, test := range []struct {
		account Account
		fields  []ProfileField
		want    [3]string
	}{
		{a, all, [3]string{"B%C3%BCro%20100%25", "a%20b@example.com", "+37060012345"}},
		{a, []ProfileField{ProfilePhone, ProfileRole}, [3]string{ProfileRole: "B%C3%BCro%20100%25", ProfilePhone: "+37060012345"}},
		{a, []ProfileField{ProfileEmail}, [3]string{ProfileEmail: "a%20b@example.com"}},
		{a, nil, [3]string{}},
		{Account{Phone: "+37060012345"}, all, [3]string{ProfilePhone: "+37060012345"}},
		{Account{Role: "\x00\x1f\x7f\r\n\xff~!"}, all, [3]string{"%00%1F%7F%0D%0A%FF~!"}},
		{Account{}, all, [3]string{}},
	} {
		p := NewProfile(test.account, test.fields)
		for f, want := range test.want {
			if got := p.Value(ProfileField(f)); got != want {
				t.Errorf("%v of %q: got %q, want %q", f, p, got, want)
			}
		}
		if p != "" && test.want == [3]string{} {
			t.Errorf("got %q for nothing", p)
		}
	}
}
