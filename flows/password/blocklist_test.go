package password

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// The search needs this format. A checkout that changes line ends breaks it.
func TestCommonPasswordsAreFoldedAndSorted(t *testing.T) {
	lines := strings.Split(strings.TrimSuffix(commonPasswords, "\n"), "\n")
	if len(lines) < 5000 {
		t.Errorf("%d passwords, want at least 5000", len(lines))
	}
	if !slices.IsSorted(lines) || len(slices.Compact(slices.Clone(lines))) != len(lines) || !strings.HasSuffix(commonPasswords, "\n") {
		t.Error("lines must be sorted, unique and ended")
	}
	for _, line := range lines {
		if len(line) < 8 || Fold(line) != line || strings.ContainsAny(line, "\r\t ") {
			t.Errorf("%q is too short or not folded", line)
		}
		if !Common().Contains(line) {
			t.Errorf("%q is not found", line)
		}
	}
}

func TestBlocklistContains(t *testing.T) {
	b := Common()
	for _, password := range []string{"password", "PassWord", "12345678", "qwertyuiop", "Iloveyou1", "00000000", "ZZZZZZZZ", "87654321", "PASSWORD1"} {
		if !b.Contains(password) {
			t.Errorf("%q is not in the list", password)
		}
	}
	for _, password := range []string{"", "\n", "passwor", "passwordpassword2x", "password\npassword1", "correct horse battery staple", "0", "zzzzzzzzzzzzzzzzz", "пароль-у-меня"} {
		if b.Contains(password) {
			t.Errorf("%q is in the list", password)
		}
	}
}

func TestIsRepeated(t *testing.T) {
	for password, want := range map[string]bool{
		"        ": true, " \t\n\u00a0\u3000   ": true, "ąĄąĄąĄąĄ": true, "ａaＡAaaaa": true, "😀😀😀😀😀😀😀😀": true, "zzzzzzzzzzzzzzzzzzzz": true, "e\u0301éÉéé": true,
		"zzzzzzzzzzzzzzzzzzzy": false, "a a a a a": false, "abababab": false,
	} {
		if got := IsRepeated(password); got != want {
			t.Errorf("%q: got %v", password, got)
		}
	}
}

func TestBlocklistWithAddsAndLeavesTheOther(t *testing.T) {
	b := Common()
	own, err := b.With(strings.NewReader("\ufeffMnemogate\r\n\r\n  Straße am Meer \n#hash#\npassword\nмосква2024\ncaf\xe9caf\xe9\nfullｗｉｄｔｈ\nlast line"))
	must(t, err)
	for _, password := range []string{"mnemogate", "MNEMOGATE", "STRASSE AM MEER", "straße am meer", "#hash#", "Москва2024", "fullwidth", "Last line", "password", "iloveyou1"} {
		if !own.Contains(password) {
			t.Errorf("%q is not in the list", password)
		}
	}
	for _, password := range []string{"", "straße", "last", "caf"} {
		if own.Contains(password) {
			t.Errorf("%q is in the list", password)
		}
	}
	if b.Contains("mnemogate") {
		t.Error("the built-in list has changed")
	}
	more, err := own.With(strings.NewReader("quincunx42"))
	must(t, err)
	if !more.Contains("quincunx42") || !more.Contains("mnemogate") || own.Contains("quincunx42") {
		t.Error("With must add to a copy")
	}
}

func TestBlocklistWithNothing(t *testing.T) {
	none := new(Blocklist)
	if none.Contains("password") {
		t.Error("an empty list contains a password")
	}
	for _, text := range []string{"", "\n\n"} {
		b, err := none.With(strings.NewReader(text))
		if err != nil || b.Contains("") || b.Contains("password") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBlocklistWithReportsWhatItCannotRead(t *testing.T) {
	broken := errors.New("broken disk")
	_, err := Common().With(io.MultiReader(strings.NewReader("one\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := Common().With(strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("a line of a megabyte is no password")
	}
}
