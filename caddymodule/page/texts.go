package page

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// fallback is the language for users whose languages are not available, and for
// texts that another language does not have.
const fallback = "en"

// readTexts reads the built-in texts, and then the operator's, which replace them.
func (p *Page) readTexts(dir string) error {
	p.texts, p.languages = map[string]map[string]string{}, nil
	if err := p.readLanguages(assets, "assets/texts", nil); err != nil {
		return err
	}
	if dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("texts: %s is not a directory; name one with files like lt.json", dir)
		}
		if err := p.readLanguages(os.DirFS(dir), ".", maps.Clone(p.texts[fallback])); err != nil {
			return err
		}
	}
	tags := slices.Sorted(maps.Keys(p.texts))
	tags = append([]string{fallback}, slices.DeleteFunc(tags, func(t string) bool { return t == fallback })...)
	for _, tag := range tags {
		if p.texts[tag]["language"] == "" {
			p.texts[tag]["language"] = tag // else the menu has two with the name of the fallback
		}
		p.languages = append(p.languages, language.MustParse(tag))
		// Missing texts come from the fallback language. The page marks them as such.
		texts := maps.Clone(p.texts[fallback])
		maps.Copy(texts, p.texts[tag])
		var foreign []string
		for key := range texts {
			if p.texts[tag][key] == "" {
				foreign = append(foreign, key)
			}
		}
		p.texts[tag] = maps.Clone(texts)
		if foreign != nil {
			slices.Sort(foreign)
			texts["foreign"] = strings.Join(foreign, " ")
		}
		p.files[textsFile("security", tag)] = packed(texts)
		maps.DeleteFunc(texts, func(key, _ string) bool { return strings.HasPrefix(key, "security.") })
		p.files[textsFile("login", tag)] = packed(texts)
	}
	p.matcher = language.NewMatcher(p.languages)
	return nil
}

func packed(texts map[string]string) *file {
	content, _ := json.Marshal(texts) // it escapes what could end a script
	return newFile(contentTypes[".json"], content)
}

// textsFile returns the name of the file with the texts of a kind of page. Only the
// security page needs half of them.
func textsFile(kind, lang string) string {
	if kind == "security" {
		return "texts/security/" + lang + ".json"
	}
	return "texts/" + lang + ".json"
}

// readLanguages reads each <language>.json of a directory. If keys is set, a file
// may contain only these keys, and a text only the placeholders of the same key's
// text.
func (p *Page) readLanguages(from fs.FS, dir string, keys map[string]string) error {
	entries, err := fs.ReadDir(from, dir)
	if err != nil {
		return fmt.Errorf("texts: %w", err)
	}
	found := false
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), ".json")
		if !ok || entry.IsDir() {
			continue
		}
		found = true
		if err := p.readLanguage(from, path.Join(dir, entry.Name()), name, keys); err != nil {
			return fmt.Errorf("texts: %s: %w", entry.Name(), err)
		}
	}
	if !found {
		return errors.New("texts: there is no <language>.json in the directory, such as en.json or pt-BR.json")
	}
	return nil
}

var placeholder = regexp.MustCompile(`\{[a-z]+\}`)

func (p *Page) readLanguage(from fs.FS, file, name string, keys map[string]string) error {
	tag, err := language.Parse(name)
	if err != nil || tag.String() != name {
		return errors.New("its name is not a language tag like lt or pt-BR")
	}
	content, err := fs.ReadFile(from, file)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	if err := json.Unmarshal(content, &texts); err != nil {
		return fmt.Errorf("it must be an object of texts by their keys: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if keys == nil {
			continue
		}
		original, ok := keys[key]
		if !ok {
			return fmt.Errorf("there is no text %q; docs/login-page.md says where they are listed", key)
		}
		for _, held := range placeholder.FindAllString(texts[key], -1) {
			if !strings.Contains(original, held) {
				return fmt.Errorf("%s: there is no value for the placeholder %s; remove it", key, held)
			}
		}
	}
	if p.texts[name] == nil {
		p.texts[name] = map[string]string{}
	}
	maps.Copy(p.texts[name], texts)
	return nil
}

// maxTag is the length to which language tags are cut (RFC 5646, section 4.4.1).
const maxTag = 35

// Language returns the language with the requested tag or, if there is none, the
// best match for the languages that the user understands.
func (p *Page) Language(asked string, understood []language.Tag) language.Tag {
	if tag, err := language.Parse(asked[:min(len(asked), maxTag)]); err == nil {
		if _, i, how := p.matcher.Match(tag); how != language.No {
			return p.languages[i]
		}
	}
	_, i, _ := p.matcher.Match(understood...)
	return p.languages[i]
}

// rightToLeft lists the scripts that are written from right to left.
var rightToLeft = []string{"Arab", "Hebr", "Thaa", "Syrc", "Nkoo", "Adlm", "Rohg", "Mand", "Samr"}

func direction(tag string) string {
	if script, _ := language.Make(tag).Script(); slices.Contains(rightToLeft, script.String()) {
		return "rtl"
	}
	return "ltr"
}

// A languageChoice is a language that the user can choose.
type languageChoice struct {
	Tag, Name, Dir string
	Chosen         bool
}

// languageChoices lists the languages, each with its own name.
func (p *Page) languageChoices(chosen string) (all []languageChoice) {
	for _, tag := range p.languages {
		all = append(all, languageChoice{tag.String(), p.texts[tag.String()]["language"], direction(tag.String()), tag.String() == chosen})
	}
	return all
}
