package message

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// maxLocale is how long a language tag may be. RFC 5646, 4.4.1 wants no more to fit.
const maxLocale = 35

// ParseLocale reads a language tag of BCP 47, such as lt, lt-LT or zh-Hant-TW, in any
// case. The tag's String is the one spelling of it that is kept.
func ParseLocale(s string) (language.Tag, error) {
	tag, err := language.Parse(s)
	if err != nil || len(s) > maxLocale || strings.Contains(s, "_") || tag == language.Und {
		return language.Und, ErrLocale
	}
	return tag, nil
}

// ErrLocale: it is no language tag.
var ErrLocale = errors.New("write a language tag of BCP 47 like lt, lt-LT or zh-Hant-TW")

// Locale returns a language tag in the spelling that is kept. What is none comes back
// as it is, and manage.CheckAccount refuses it.
func Locale(s string) string {
	if tag, err := ParseLocale(s); err == nil {
		return tag.String()
	}
	return s
}

// IsLocale reports whether s is a language tag in the spelling that is kept.
func IsLocale(s string) bool {
	tag, err := ParseLocale(s)
	return err == nil && tag.String() == s
}

// Translations are a text in other languages than the one it is written in.
type Translations struct {
	matcher language.Matcher
	texts   []string // by what the matcher matches
}

// NewTranslations returns the translations of a text; nil for none.
func NewTranslations(texts map[language.Tag]string) *Translations {
	if len(texts) == 0 {
		return nil
	}
	byName := func(a, b language.Tag) int { return strings.Compare(a.String(), b.String()) }
	tags := slices.SortedFunc(maps.Keys(texts), byName)
	t := &Translations{matcher: language.NewMatcher(tags)}
	for _, tag := range tags {
		t.texts = append(t.texts, texts[tag])
	}
	return t
}

// Or returns the text in the first of the languages that it is there in, and
// otherwise the original. A language that readers of another can only guess at is
// none of theirs.
func (t *Translations) Or(original string, languages []language.Tag) string {
	if t == nil {
		return original
	}
	for _, tag := range languages {
		if _, i, confidence := t.matcher.Match(tag); confidence >= language.High {
			return t.texts[i]
		}
	}
	return original
}
