package senders

import (
	"strings"
	"testing"
)

func TestAGatewaysAnswerIsShownWithoutWhatItWasSent(t *testing.T) {
	sent := []string{`{"to":"+37060000001","code":"123456","link":"https://acme.example/#mgl_Ab-cD_ef","text":"Your code: 123456"}`, "Bearer s3cret"}
	for answer, want := range map[string]string{
		`{"status":21211,"message":"Insufficient balance"}`: `"{\"status\":21211,\"message\":\"Insufficient balance\"}"`,
		`no route to +370 600-00001`:                        `"no route to … …"`,
		`rejected: 1 2 3 4 5 6, 123456, otp=123-456.`:       `"rejected: … … … … … …, …, …"`,
		`bad link https://acme.example/#mgl_Ab-cD_ef`:       `"bad … …:…"`,
		`unknown key=s3cret, header: BEARER s3cret`:         `"unknown …, header: … …"`,
		`in base64: eyJ0byI6IiszNzA2MDAwMDAwMSIs`:           `"in base64: …"`,
		strings.Repeat("no ", 100):                          `"` + strings.Repeat("no ", 66) + `no"`,
		strings.Repeat("no ", 65) + "mgl_Ab-cD_ef":          `"` + strings.Repeat("no ", 65) + `…"`,
		"a\nb\x00\xff": `"a\nb\x00"`,
		"":             `""`,
	} {
		if got := shown([]byte(answer), sent...); got != want {
			t.Errorf("%q: got %s, want %s", answer, got, want)
		}
	}
}
