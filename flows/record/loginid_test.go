package record

import "testing"

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
