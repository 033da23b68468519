package flows_test

import (
	"strings"
	"testing"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func inLanguages(texts map[string]string) *message.Translations {
	tagged := map[language.Tag]string{}
	for tag, text := range texts {
		tagged[language.MustParse(tag)] = text
	}
	return message.NewTranslations(tagged)
}

func TestADisclaimerIsInALanguageOfItsReader(t *testing.T) {
	b := newHarness(t)
	b.company.Disclaimers = []wire.Disclaimer{{
		Code: "terms", Title: "Terms", Description: "About them", Link: "https://example.com/terms",
		Titles: inLanguages(map[string]string{"lt": "Sąlygos", "pt-BR": "Termos", "zh-Hans": "条款", "ru": "Условия"}),
		Links:  inLanguages(map[string]string{"lt": "https://example.com/lt", "de": "https://example.com/de"}),
	}}
	for accept, want := range map[string][2]string{
		"":             {"Terms", "https://example.com/terms"},
		"fr":           {"Terms", "https://example.com/terms"},
		"lt-LT":        {"Sąlygos", "https://example.com/lt"},
		"fr, lt":       {"Sąlygos", "https://example.com/lt"},
		"lt;q=0.5, de": {"Sąlygos", "https://example.com/de"}, // each text in the best language that has it
		"pt":           {"Termos", "https://example.com/terms"},
		"zh-TW":        {"Terms", "https://example.com/terms"}, // another script
		"uk":           {"Terms", "https://example.com/terms"}, // a related language that matches none of these
		"*":            {"Terms", "https://example.com/terms"},
	} {
		tags, _, err := language.ParseAcceptLanguage(accept)
		must(t, err)
		config, err := b.ClientConfig(t.Context(), &flows.Request{Company: code, Client: session.Client{Languages: func() []language.Tag { return tags }}})
		must(t, err)
		got := config.Disclaimers[0]
		if got.Title != want[0] || got.Link != want[1] || got.Description != "About them" || got.Code != "terms" {
			t.Errorf("%q: got %+v, want %q", accept, got, want)
		}
	}
}

func TestALocaleIsALanguageTag(t *testing.T) {
	for given, want := range map[string]string{
		"lt": "lt", "LT-lt": "lt-LT", "zh-hant-tw": "zh-Hant-TW", "pt-BR": "pt-BR", "es-419": "es-419",
		"": "", "und": "", "lt_LT": "", "Lithuanian": "", "lt-": "", "../lt": "", "lt/x": "", "lt\x00": "", " lt": "",
		"en-x-" + strings.Repeat("abcdefgh-", 5) + "z": "",
	} {
		tag, err := message.ParseLocale(given)
		if (err == nil) != (want != "") || err == nil && tag.String() != want {
			t.Errorf("%q: got %v and %v, want %q", given, tag, err, want)
		}
	}
}
