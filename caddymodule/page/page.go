// Package page serves the login page, and the module client.js that the page and
// apps use. There is no framework and no build step: the files in assets are served
// as they are, but without the comments of scripts. Start at Page. The code in the browser
// starts in assets/page.js.
package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

//go:embed assets
var assets embed.FS

// Options configures the page. An empty string means none or the built-in one.
type Options struct {
	// The title of the page and of the browser's window. With `off`, the page shows the
	// logo alone, for logos that contain the name. Default: the company's `name`.
	Title string `json:"title,omitempty"`

	// The file of the image above the title: SVG, PNG, JPEG, WebP or GIF. It is read
	// when the configuration is loaded. Default: none.
	Logo string `json:"logo,omitempty"`

	// The file of the image that replaces the logo in dark mode. Default: the logo.
	LogoDark string `json:"logo_dark,omitempty"`

	// The file of the icon in the browser's tab: SVG, PNG or ICO. Default: the logo
	// or, without one, a lock.
	Favicon string `json:"favicon,omitempty"`

	// The color of buttons and links, as in CSS: `#336699`, `rgb(51, 102, 153)`,
	// `teal`. The page keeps text on it and next to it readable, and gives buttons a
	// border if their color is close to the background. Default: a blue.
	Color string `json:"color,omitempty"`

	// The color in dark mode. Default: Color.
	ColorDark string `json:"color_dark,omitempty"`

	// The file of a style sheet of your own, which the page loads after its own. It
	// may use fonts and images in files next to it, as `url(fonts/name.woff2)`.
	// docs/login-page.md lists the properties and classes that it can rely on.
	// Default: none.
	Style string `json:"style,omitempty"`

	// A directory of texts with one file per language: `lt.json`, `pt-BR.json`. They
	// replace the built-in texts or add a language. Default: the built-in texts, in
	// English, French, German, Lithuanian and Spanish.
	Texts string `json:"texts,omitempty"`

	// Links below the form, such as imprint, privacy policy and support. They stay
	// visible on each screen. Default: none.
	Links []Link `json:"links,omitempty"`

	// Where users without an account create one. With several languages, the page
	// shows the link of the user's language. Default: none; the page then does not
	// offer it.
	SignUp []Link `json:"signup,omitempty"`

	// Whether the page has a checkbox "Stay logged in". With it the cookie lasts for
	// the session's `lifetime`, and otherwise until the browser is closed. The
	// session ends after `idle` without a request in both cases. Default: false.
	Remember bool `json:"remember,omitempty"`

	// The file of each provider's icon, by IconName.
	Icons map[string]string `json:"-"`
}

// A Page is a login page that is ready to serve. Its methods may be called concurrently.
type Page struct {
	title     string
	untitled  bool             // the logo stands for the title
	files     map[string]*file // by the part of the path after the version
	version   string           // of all files
	languages []language.Tag
	matcher   language.Matcher
	texts     map[string]map[string]string // by language
	configs   map[string]Config            // by language
}

// New returns a page with these options. Its errors begin with the directive.
func New(o Options) (*Page, error) {
	common, err := pageOfAll()
	if err != nil {
		return nil, err
	}
	p := *common
	p.title, p.untitled, p.files = o.Title, o.Title == "off", maps.Clone(common.files)
	if err := guest.CheckNoPlaceholder(o.Title, "write it as users read it"); err != nil {
		return nil, guest.Inside("title", err)
	}
	if o.LogoDark != "" && o.Logo == "" {
		return nil, errors.New("logo_dark: there is no logo that it could replace; set logo, too")
	}
	if p.untitled {
		if p.title = ""; o.Logo == "" {
			return nil, errors.New("title: off leaves the logo alone, and there is none; set logo, too")
		}
	}
	if o.Texts != "" {
		if err := p.readTexts(o.Texts); err != nil {
			return nil, err
		}
	}
	// The links need the texts' languages.
	err = guest.First(
		func() error { return p.readLinks(o) },
		func() error { return p.paint("color", o.Color) },
		func() error { return p.paint("color_dark", o.ColorDark) },
		func() error { return p.readStyle(o.Style) },
		func() error { return p.readImage("logo", o.Logo) },
		func() error { return p.readImage("logo_dark", o.LogoDark) },
		func() error { return p.readImage("favicon", o.Favicon) },
	)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(o.Icons)) {
		if err := p.readImage(name, o.Icons[name]); err != nil {
			return nil, err
		}
	}
	p.setVersion()
	return &p, nil
}

// pageOfAll returns the files and texts that all pages have. A Caddy may have hundreds of
// pages, and to read and pack these takes most of New's time and memory.
var pageOfAll = sync.OnceValues(func() (*Page, error) {
	p := &Page{files: map[string]*file{}}
	if err := p.readTexts(""); err != nil {
		return nil, err
	}
	return p, fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) == ".html" || path.Ext(name) == ".ts" || path.Dir(name) == "assets/texts" {
			return err
		}
		content, err := assets.ReadFile(name)
		if path.Ext(name) == ".js" {
			content = jsForReaders.ReplaceAll(content, nil)
		}
		p.files[strings.TrimPrefix(name, "assets/")] = newFile(contentTypes[path.Ext(name)], content)
		return err
	})
})

// jsForReaders matches what only readers of a script need. It is a quarter of the size,
// which is half a second on a slow line.
var jsForReaders = regexp.MustCompile(`(?m)^[ \t]*(//.*)?\n|^[ \t]+`)

// IconName returns the file name of the icon of a company's provider.
func IconName(company string, provider int) string {
	return fmt.Sprintf("icon-%s-%d", company, provider)
}

// readImage reads the file of an option, if there is one.
func (p *Page) readImage(option, name string) error {
	if name == "" {
		return nil
	}
	kind, content, err := guest.ReadImage(name)
	if err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	p.files[option] = newFile(kind, content)
	return nil
}

// cssColor matches an opaque CSS color that is no name.
var cssColor = regexp.MustCompile(`(?i)^(#([0-9a-f]{3}){1,2}|(rgb|hsl|hwb|lab|lch|oklab|oklch)\(\s*` + cssNumber + `([\s,]+` + cssNumber + `){2}\s*\))$`)

// cssNames are the named colors of CSS Color Module Level 4.
var cssNames = strings.Fields("aliceblue antiquewhite aqua aquamarine azure beige bisque black blanchedalmond blue blueviolet brown burlywood " +
	"cadetblue chartreuse chocolate coral cornflowerblue cornsilk crimson cyan darkblue darkcyan darkgoldenrod " +
	"darkgray darkgreen darkgrey darkkhaki darkmagenta darkolivegreen darkorange darkorchid darkred darksalmon " +
	"darkseagreen darkslateblue darkslategray darkslategrey darkturquoise darkviolet deeppink deepskyblue dimgray " +
	"dimgrey dodgerblue firebrick floralwhite forestgreen fuchsia gainsboro ghostwhite gold goldenrod gray green " +
	"greenyellow grey honeydew hotpink indianred indigo ivory khaki lavender lavenderblush lawngreen lemonchiffon " +
	"lightblue lightcoral lightcyan lightgoldenrodyellow lightgray lightgreen lightgrey lightpink lightsalmon " +
	"lightseagreen lightskyblue lightslategray lightslategrey lightsteelblue lightyellow lime limegreen linen " +
	"magenta maroon mediumaquamarine mediumblue mediumorchid mediumpurple mediumseagreen mediumslateblue " +
	"mediumspringgreen mediumturquoise mediumvioletred midnightblue mintcream mistyrose moccasin navajowhite navy " +
	"oldlace olive olivedrab orange orangered orchid palegoldenrod palegreen paleturquoise palevioletred papayawhip " +
	"peachpuff peru pink plum powderblue purple rebeccapurple red rosybrown royalblue saddlebrown salmon sandybrown " +
	"seagreen seashell sienna silver skyblue slateblue slategray slategrey snow springgreen steelblue tan teal " +
	"thistle tomato turquoise violet wheat white whitesmoke yellow yellowgreen")

const cssNumber = `-?[0-9]*\.?[0-9]+(%|deg)?`

// paint adds the color of an option to the style sheet.
func (p *Page) paint(option, color string) error {
	color = strings.TrimSpace(color)
	if color == "" {
		return nil
	}
	if !cssColor.MatchString(color) && !slices.Contains(cssNames, strings.ToLower(color)) {
		return fmt.Errorf(`%s: %q is not a color that the page can use; write it in quotes, as "#336699", "rgb(51, 102, 153)" or "hsl(210, 50%%, 40%%)", or by its name in CSS`, option, color)
	}
	rule := fmt.Sprintf("\n:root {\n\t--color: %s;\n}\n", color)
	if option == "color_dark" {
		rule = "\n@media (prefers-color-scheme: dark) {" + rule + "}\n"
	}
	p.files["page.css"] = newFile(contentTypes[".css"], slices.Concat(p.files["page.css"].plain, []byte(rule)))
	return nil
}

// The relative luminances of the card, which is --paper in page.css.
const lightPaper, darkPaper = 1, .0144

// Weaknesses lists colors in which buttons are hard to see. It knows those in hexadecimal
// digits, and not what a style sheet of the operator makes of them.
func (o *Options) Weaknesses() (found []guest.Weakness) {
	for _, c := range []struct {
		color, in, advice string
		paper             float64
	}{
		{o.Color, "light", "choose a darker color, and the present one as color_dark", lightPaper},
		{cmp.Or(o.ColorDark, o.Color), "dark", "set color_dark to a lighter color", darkPaper},
	} {
		y, known := message.Luminance(c.color)
		ratio := (max(y, c.paper) + .05) / (min(y, c.paper) + .05)
		if known && ratio < 3 && o.Style == "" { // WCAG 2.2, 1.4.11
			found = append(found, guest.Weakness{
				Message: fmt.Sprintf("in %s mode, %s has a contrast of only %.1f to 1 to the card, so buttons get a border", c.in, c.color, ratio),
				Advice:  c.advice,
			})
		}
	}
	return found
}

// setVersion derives the version in the files' paths from all their contents.
// Browsers can then cache the files forever, and never mix files of two versions.
func (p *Page) setVersion() {
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		fmt.Fprintf(all, "%s %s\n", name, p.files[name].etag)
	}
	p.version = base64.RawURLEncoding.EncodeToString(all.Sum(nil)[:12])
}

// A file is sent gzipped if that is smaller, and otherwise as it is.
type file struct {
	contentType    string
	plain, gzipped []byte // gzipped is nil if it would save nothing
	etag           string
}

var contentTypes = map[string]string{
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".ts":   "text/plain; charset=utf-8",
	".json": "application/json",
	".svg":  "image/svg+xml",
}

func newFile(contentType string, content []byte) *file {
	hash := sha256.Sum256(content)
	f := &file{contentType: contentType, plain: content, etag: `W/"` + base64.RawURLEncoding.EncodeToString(hash[:12]) + `"`}
	best, _ := gzip.NewWriterLevel(nil, gzip.BestCompression) // the level is valid
	if packed := pack(content, best); len(packed) < len(content)*9/10 {
		f.gzipped = packed
	}
	return f
}

// packers keeps gzip writers, each of which takes more memory than the page that it packs.
// Each page is packed anew, so they use the quickest level.
var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

func packPage(content []byte) []byte {
	w := packers.Get().(*gzip.Writer)
	defer packers.Put(w)
	return pack(content, w)
}

func pack(content []byte, w *gzip.Writer) []byte {
	var b bytes.Buffer
	w.Reset(&b)
	_, _ = w.Write(content) // a buffer accepts every write
	_ = w.Close()
	w.Reset(nil) // it keeps no page
	return b.Bytes()
}

// address marks a link's address as safe, which Check has found it to be.
func address(s string) template.URL { return template.URL(s) }

var html = template.Must(template.New("page.html").Funcs(template.FuncMap{"address": address}).ParseFS(assets, "assets/page.html"))
