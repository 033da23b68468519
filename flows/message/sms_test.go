package message

import (
	"regexp"
	"strings"
	"testing"
)

// originBound is the last line of an origin-bound one-time code.
var originBound = regexp.MustCompile(`^@([a-z0-9.-]+) #([^ \n]+)$`)

// The last line of an SMS binds its code to a host, with any text, and stands there once.
func TestTheLastLineBindsACodeToAHost(t *testing.T) {
	const line = "@app.example.com #424242"
	own, err := LoadTexts(writeTexts(t, map[string]string{
		"otp.login.sms.txt":    "<#> {{.Code}}\n\n\n",
		"otp.recovery.sms.txt": "Kodas {{.Code}}\n@app.example.com #{{.Code}}\n",
	}))
	must(t, err)
	for _, texts := range []*Texts{DefaultTexts(), own} {
		for _, kind := range []string{OTPLogin, OTPRecovery} {
			m := Message{Type: kind, Company: "acme", To: "+37060000034", Code: "424242", Origin: "app.example.com"}
			must(t, texts.Render(&m, textTime))
			before, last, _ := strings.Cut(m.Text, "\n"+line)
			if found := originBound.FindStringSubmatch(line); last != "" || strings.Contains(before, "@") || len(found) != 3 || found[1] != m.Origin || found[2] != m.Code {
				t.Errorf("%s: %q", kind, m.Text)
			}
			if m.Origin = ""; texts == own {
				continue
			}
			if err := texts.Render(&m, textTime); err != nil || strings.Contains(m.Text, "@") {
				t.Errorf("without a host: %q, %v", m.Text, err)
			}
		}
	}
}

func TestPartsOfAnSMS(t *testing.T) {
	for text, want := range map[string]int{
		strings.Repeat("a", 160):       1,
		strings.Repeat("ä", 160):       1,
		strings.Repeat("a", 161):       2,
		strings.Repeat("€", 80):        1,
		strings.Repeat("€", 81):        2,
		strings.Repeat("a", 306):       2,
		strings.Repeat("a", 307):       3,
		strings.Repeat("ą", 70):        1,
		"ą" + strings.Repeat("a", 70):  2,
		"ą" + strings.Repeat("a", 134): 3,
		strings.Repeat("😀", 35):        1,
		strings.Repeat("😀", 36):        2,
	} {
		if got := parts(text); got != want {
			t.Errorf("%d characters like %q: got %d, want %d", len([]rune(text)), text[:4], got, want)
		}
	}
}

// A warning says when the line costs another SMS.
func TestAHostMayMakeAnSMSLonger(t *testing.T) {
	for _, c := range []struct {
		company, host string
		want          int
	}{
		{"Acme", "", 1},
		{"Acme", "app.example.com", 1},
		{strings.Repeat("W", 64), "app.example.com", 2},
		{"Ačmė", "app.example.com", 2},
	} {
		if got := DefaultTexts().CodeParts(c.company, c.host, 6); got != c.want {
			t.Errorf("%s, %s: got %d parts, want %d", c.company, c.host, got, c.want)
		}
	}
}
