package policy

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"regexp"
	"regexp/syntax"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// likeJavaScript are expressions that both read alike.
var likeJavaScript = []string{
	``, `[0-9]`, `^.{8,}$`, `^[^0-9]+$`, `\d\D\w\W`, `(^|[^\w])a\b`, `(?:a|b)*?c`, `(?<name>a)+`, `a{2,3}b{2}c{2,}`, `a{,3}`, `{`, `a{`, `}`, `]`, `a]`,
	`[!@#$%^&*()_+={}|:;"'<>,.?/~-]`, `[\-\]\[\\\^]`, `[(?<]x>`, `[a[]`, `[[]`, `[[a]`, `[[:x]`, `[a-z&&[^b]]`, `[^^]`, `[:alpha:]`,
	`\@\!\ \-\/\.`, `\x41\n\t`, `^$`, `\^*`, `\$+`, `(^)*`, `()`, `(|a)`, `a|`, `é`, `[é-ü]`, `[{2}]`, `\{2\}`, `[\d-z]`, `\\s`, `[\\s]`, `\\\\p`, `\bfoo\B`, `\01\0`,
}

// notLikeJavaScript are others, and what is named of them.
var notLikeJavaScript = map[string]string{
	`(?i)secret`:                        `(?i)`,
	`a(?s:.)b`:                          `(?s:`,
	`(?P<name>a)`:                       `(?P<name>`,
	`(?<1>a)`:                           `(?<1>`,
	`\pN`:                               `\pN`,
	`^\p{Lu}`:                           `\p{Lu}`,
	`\P{Lu}`:                            `\P{Lu}`,
	`[a\pL]`:                            `\pL`,
	`[[:digit:]]`:                       `[:digit:]`,
	`[a[:^alpha:]]`:                     `[:^alpha:]`,
	`\Aabc`:                             `\A`,
	`abc\z`:                             `\z`,
	`\Q.*\E`:                            `\Q`,
	`\a`:                                `\a`,
	`\x{1F600}`:                         `\x{1F600}`,
	`\x{41}`:                            `\x{41}`,
	`(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\10`: `\10`,
	`[]a]`:                              `[]`,
	`[^]a]`:                             `[^]`,
	`^\S+$`:                             `\S`,
	`a\sb`:                              `\s`,
	`^*a`:                               `^*`,
	`a$+`:                               `$+`,
	`\b{2}a`:                            `\b{2}`,
	`a\B??`:                             `\B?`,
	`[😀]`:                               `😀`,
	`😀{2}`:                              `😀`,
	`\\\pN`:                             `\pN`,
	`[\]](?i:x)[(?i:x)]`:                `(?i:`,
}

func TestWhatJavaScriptReadsOtherwiseIsNamed(t *testing.T) {
	for _, re := range likeJavaScript {
		if part := unlikeJavaScript(re); part != "" {
			t.Errorf("%s: %q is named", re, part)
		}
	}
	for re, want := range notLikeJavaScript {
		if part := unlikeJavaScript(re); part != want {
			t.Errorf("%s: %q is named, want %q", re, part, want)
		}
	}
}

// judge asks JavaScript's engine: which of the texts does each expression match?
// Nil is an expression that it refuses.
const judge = `
const { expressions, texts } = JSON.parse(require('fs').readFileSync(0, 'utf8'));
console.log(JSON.stringify(expressions.map((source) => {
  try { const re = new RegExp(source); return texts.map((text) => re.test(text)); } catch { return null; }
})));`

// The lists above are right, says JavaScript.
func TestJavaScriptAgrees(t *testing.T) {
	storetest.NeedPeers(t, "../integration/testdata/peers")
	texts := []string{"", "a", "b", "ab", "aa", "aab", "aabbcc", "ac", "abc", "c", "A", "N", "p", "pN", "pL", "Lu", "p{Lu}", "P{Lu}", "secret", "SECRET", "Aabc", "abcz", ".*", "Q.*E", "Q..E",
		"1", "7", "٣", "É", "é", "ü", "_", " ", "\u00a0", "a\u00a0b", "a b", "a\u00a0", "x", "x41", "\x07", "\x01", "\n", "ab\n", "aba\n", "abab", "\t", "😀", "\U0001f601", "😀😀", "\U0001f600", "]", "]a", "a]", "[", "[]", "d:]", "d]", ":]", "alpha", "a:]",
		"{", "{2}", "a{", "a{,3}", "aaaaaaaa", "@! -/.", "A\n\t", "^", "$", "^^a", "a$", "a$$", "(", "?", "<", "(x>", "\\", "\\s", "\\\\p", "s", "S", "z", "foobar", "foo", "foo ba", "bfoo", "]x[", "]X]", "]xi", "^*a", "a\nb", "axb", "axbc", "1a-z", "1-z", "12ab", "a1_-", "aa_ ", "\\pN", "\\1", "\x01\x00", "abcdefghijj"}
	expressions := likeJavaScript
	for re := range notLikeJavaScript {
		expressions = append(expressions, re)
	}
	question, err := json.Marshal(map[string]any{"expressions": expressions, "texts": texts})
	storetest.Must(t, err)
	node := exec.Command("node", "-e", judge)
	node.Stdin = bytes.NewReader(question)
	answer, err := node.Output()
	storetest.Must(t, err)
	var verdicts [][]bool
	storetest.Must(t, json.Unmarshal(answer, &verdicts))
	for i, re := range expressions {
		alike := verdicts[i] != nil
		for j, matched := range verdicts[i] {
			if regexp.MustCompile(re).MatchString(texts[j]) != matched {
				alike = false
				if i < len(likeJavaScript) {
					t.Errorf("%s and %q: JavaScript says %v", re, texts[j], matched)
				}
			}
		}
		if alike != (i < len(likeJavaScript)) {
			t.Errorf("%s is read alike: %v", re, alike)
		}
	}
}

// Whatever RE2 takes is read to its end.
func FuzzUnlikeJavaScript(f *testing.F) {
	for _, re := range likeJavaScript {
		f.Add(re)
	}
	for re := range notLikeJavaScript {
		f.Add(re)
	}
	f.Fuzz(func(t *testing.T, re string) {
		if _, err := syntax.Parse(re, syntax.Perl); err == nil {
			unlikeJavaScript(re)
		}
	})
}
