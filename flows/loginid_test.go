package flows_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

var spellings = map[string][]string{
	phone: {
		"+37060012345", "0037060012345", "+370 600 12345", "+370 (600) 12-345", "00 370 600.12.345", " +370-600-12345 ",
		"+370[600]12345", "+３７０６００１２３４５", "+370\u00a0600\u00a012345", "+370\u2011600\u201112345", "+370–600–12345",
		"\u202a+370 600 12345\u202c", "\u2068\u200e+37060012345\u2069",
	},
	email:      {"alice@example.com", "ALICE@Example.COM", "  alice@example.com\t", "ａｌｉｃｅ@example.com", "Alice@EXAMPLE.com\u00a0"},
	"Straße-7": {"Straße-7", "STRASSE-7", "strasse-7", "\u3000straẞe-7", "Stra\u017fse-7"},
}

// All spellings of a login id find the same account and share the same counts.
func TestLoginIDsInEverySpellingAreOne(t *testing.T) {
	for id, variants := range spellings {
		t.Run(id, func(t *testing.T) {
			b := newHarness(t)
			b.company.Limits.LockAfter = len(variants)
			b.update(true, func(a *record.Account) { a.LoginName = "Straße-7" })
			for _, spelling := range variants {
				read := "" // a phone in another spelling is told as it was read
				if id == phone && spelling != phone {
					read = phone
				}
				if reply := b.must("auth/login", "", object{"login_id": spelling}); reply.LoginID != read {
					t.Errorf("%q was read as %q", spelling, reply.LoginID)
				}
			}
			for _, spelling := range variants {
				b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": spelling, "password": "wrong"})
			}
			for other, variants := range spellings {
				b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": variants[0]})
				b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": other, "password": password})
			}
		})
	}
}

func TestLoginIDsAreFolded(t *testing.T) {
	for _, pair := range [][2]string{
		{"ΣΊΣΥΦΟΣ", "σίσυφος"}, {"ﬁﬂ", "FIFL"}, {"ǅ", "ǆ"}, {"ᏣᎳᎩ", "ꮳꮃꭹ"}, {"Ᏹ", "ᏹ"}, {"Ω", "\u2126"}, {"①", "1"}, {"e\u0301", "É"},
	} {
		if a, b := typed.LoginID(pair[0], ""), typed.LoginID(pair[1], ""); a != b {
			t.Errorf("%q is %q, %q is %q", pair[0], a, pair[1], b)
		}
	}
}

func TestOtherLoginIDsAreOthers(t *testing.T) {
	for _, pair := range [][2]string{
		{"+37060012345", "37060012345"}, {"+37060012345", "060012345"}, {"a.b@example.com", "ab@example.com"},
		{"anna-maria", "annamaria"}, {"anna maria", "annamaria"}, {"+37060012345x", "+37060012345"}, {"é", "e"},
	} {
		if a, b := typed.LoginID(pair[0], ""), typed.LoginID(pair[1], ""); a == b {
			t.Errorf("%q and %q are both %q", pair[0], pair[1], a)
		}
	}
}

func FuzzNormalizeLoginID(f *testing.F) {
	for _, variants := range spellings {
		for _, s := range variants {
			f.Add(s)
		}
	}
	for _, s := range []string{"", " ", "00", "+", "ΐ", "\u0345α\u0301", "ᾳ\u0301", "İ", "Ꭰ", "ﬀ", "\u1e9e", "ϔ", "\u00a0+1 234 567 8", "℀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // no body can contain it
		}
		once := typed.LoginID(s, "")
		if twice := typed.LoginID(once, ""); twice != once {
			t.Errorf("%+q becomes %+q and then %+q", s, once, twice)
		}
		if once != strings.TrimFunc(once, unicode.IsSpace) {
			t.Errorf("%+q becomes %+q, with space around it", s, once)
		}
		if spaced := typed.LoginID("\t"+s+"\u3000", ""); spaced != once {
			t.Errorf("%+q becomes %+q, with space around it %+q", s, once, spaced)
		}
		if phone := typed.Phone(s, ""); phone != "" && phone != once {
			t.Errorf("%+q is the phone %+q but the login id %+q", s, phone, once)
		}
	})
}
