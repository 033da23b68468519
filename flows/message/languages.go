package message

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// maxLocale is the maximum length of a language tag. RFC 5646, 4.4.1 requires no more.
const maxLocale = 35

// ParseLocale parses a language tag of BCP 47, such as lt, lt-LT or zh-Hant-TW, in any
// case. Store the tag's String, which is its canonical spelling.
func ParseLocale(s string) (language.Tag, error) {
	tag, err := language.Parse(s)
	base, _, _ := tag.Raw()
	if err != nil || len(tag.String()) > maxLocale || strings.Contains(s, "_") || base.String() == language.Und.String() {
		return language.Und, ErrLocale
	}
	return tag, nil
}

// ErrLocale means that a text is not a language tag.
var ErrLocale = errors.New("write a language tag of BCP 47 like lt, lt-LT or zh-Hant-TW")

// Locale returns a language tag in its canonical spelling. It returns a text that is not
// a language tag unchanged; manage.CheckAccount refuses it.
func Locale(s string) string {
	if tag, err := ParseLocale(s); err == nil {
		return tag.String()
	}
	return s
}

// IsLocale reports whether s is a language tag in its canonical spelling.
func IsLocale(s string) bool {
	tag, err := ParseLocale(s)
	return err == nil && tag.String() == s
}

// Translations holds the translations of a text.
type Translations struct {
	matcher language.Matcher
	texts   []string // in the order of the matcher's tags
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

// Or returns the translation into the first of the languages that has one, or the
// original. A related language does not count if its readers would have to guess.
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
