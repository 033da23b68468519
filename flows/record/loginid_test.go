package record

import "testing"

func TestPhonesOfARegion(t *testing.T) {
	for _, c := range []struct{ typed, region, want string }{
		{"8 600 12345", "LT", "+37060012345"},
		{"(0-600) 12345", "LT", "+37060012345"},
		{"60012345", "LT", "+37060012345"},
		{"37060012345", "LT", "+37060012345"},
		{"0170/555 1234", "DE", "+491705551234"},
		{"06 12 34 56 78", "FR", "+33612345678"},
		{"(212) 555-1234", "US", "+12125551234"},
		{"011 44 7911 123456", "US", "+447911123456"},
		{"06 1234 5678", "IT", "+390612345678"}, // Italy keeps the zero
		{"８６００１２３４５", "LT", "+37060012345"},
		{"8 600 12345", "", ""},
		{"+370 600 12345", "LT", ""}, // NormalizePhone reads it
		{"00370 600 12345", "LT", ""},
		{"112", "LT", ""},
		{"1234567890123", "LT", ""},
		{"8600-12345-anna", "LT", ""},
		{"1-800-FLOWERS", "US", ""},
		{"212 555 1234 ext. 5", "US", ""},
		{"tel:2125551234", "US", ""},
		{"", "LT", ""},
	} {
		if got := NationalPhone(c.typed, c.region); got != c.want {
			t.Errorf("%q in %s: got %q, want %q", c.typed, c.region, got, c.want)
		}
	}
}

func TestAPartOfALoginIDIsFoundInItsNormalForm(t *testing.T) {
	for part, want := range map[string]string{
		"EXAMPLE.com":    "example.com",
		" Müller ":       "müller",
		"+370 600":       "+370600",
		"600 12":         "60012",
		"(600) 12-34":    "6001234",
		"2026-11":        "2026-11", // may also be a login name
		"user 12":        "user 12",
		"john.o'neill +": "john.o'neill +",
		"":               "",
		"  ":             "",
	} {
		if got := NormalizeLoginIDPart(part); got != want {
			t.Errorf("%q: got %q, want %q", part, got, want)
		}
	}
}
