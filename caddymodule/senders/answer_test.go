package senders

import (
	"strings"
	"testing"
)

func TestAGatewaysAnswerIsShownWithoutWhatItWasSent(t *testing.T) {
	sent := []string{`{"to":"+37060000001","code":"123456","link":"https://acme.example/#mgl_Ab-cD_ef","text":"Your code: 123456"}`, "Bearer s3cret"}
	for answer, want := range map[string]string{
		`{"code":21211,"message":"Insufficient balance"}`:  `"{\"…\":21211,\"message\":\"Insufficient balance\"}"`,
		`no route to +370 600-00001`:                       `"no route to … …"`,
		`rejected: 1 2 3 4 5 6, 123456, 123-456`:           `"rejected: … … … … … …, …, …"`,
		`bad link https://acme.example/#mgl_Ab-cD_ef`:      `"bad … …:…"`,
		`unknown key s3cret, Authorization: BEARER s3cret`: `"unknown key …, Authorization: … …"`,
		strings.Repeat("x", 300):                           `"` + strings.Repeat("x", 200) + `"`,
		strings.Repeat("y ", 98) + "mgl_Ab-cD_ef":          `"` + strings.Repeat("y ", 98) + `…"`,
		"a\nb\x00\xff": `"a\nb\x00"`,
		"":             `""`,
	} {
		if got := shown([]byte(answer), sent...); got != want {
			t.Errorf("%q: got %s, want %s", answer, got, want)
		}
	}
}
