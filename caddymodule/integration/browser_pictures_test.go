package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	browserpage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// picture takes screenshots of the page in two sizes.
func (b *tab) picture(name string) {
	b.t.Helper()
	if screenshots == "" {
		return
	}
	for width, height := range map[int64]int64{320: 640, 1280: 800} {
		b.do(chromedp.EmulateViewport(width, height))
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		cancel()
		must(b.t, err)
		keepPicture(b.t, name, int(width), png)
	}
	b.do(chromedp.ResetViewport())
}

func keepPicture(t *testing.T, name string, width int, png []byte) {
	t.Helper()
	err := os.MkdirAll(screenshots, 0o755)
	must(t, errors.Join(err, os.WriteFile(filepath.Join(screenshots, fmt.Sprintf("%s-%d.png", name, width)), png, 0o644)))
}

// The pictures of the documentation. With -update, the test takes them again, from scenes
// of the preview.
func TestBrowserPicturesOfTheDocumentation(t *testing.T) {
	const most = 60_000
	plain := page.Options{Title: "Acme", Color: "#3a76b0", Remember: true, SignUp: []page.Link{{Text: "Create an account", URL: "/join"}}, Links: []page.Link{{Text: "Imprint", URL: "/imprint"}, {Text: "Privacy", URL: "/privacy"}}}
	for _, of := range []struct {
		file, brand, name, scene string
		width                    int64
	}{
		{"login-page.webp", "", "Acme", "login-passkeys", 560},
		{"login-page-code.webp", "", "Acme", "code-choices", 560},
		{"login-page-security.webp", "", "Acme", "security", 672},
		{"brands/pomelo.webp", "pomelo", "Pomelo", "login-choices", 560},
		{"brands/nocturne.webp", "nocturne", "NOCTURNE & VALE", "login-plain", 560},
	} {
		file := "../../docs/" + of.file
		if *storetest.Update {
			options := plain
			if of.brand != "" {
				options = brands(t)[of.brand].Options
			}
			b := newBrowser(t)
			names, addresses := b.previews(options, of.name, "en")
			b.do(chromedp.EmulateViewport(of.width, 400, chromedp.EmulateScale(2)))
			b.opens(addresses[slices.Index(names, of.scene)])
			height := b.eval(`document.fonts.ready.then(() => { document.activeElement.blur(); return document.documentElement.scrollHeight; })`)
			b.do(chromedp.EmulateViewport(of.width, int64(height.(float64)), chromedp.EmulateScale(2)))
			b.eval(`document.body.style.paddingBlockStart = '3rem'`) // which depends on the height
			b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
				shot, err := cdp.Call(ctx, target, browserpage.CaptureScreenshot, browserpage.CaptureScreenshotParams{Format: browserpage.CaptureScreenshotFormatWebp, Quality: new(int64(40))})
				return errors.Join(err, os.WriteFile(file, shot.Data, 0o644))
			}))
		}
		if picture, err := os.Stat(file); err != nil || picture.Size() > most {
			t.Errorf("%s: %v, or it has more than %d bytes", file, err, most)
		}
	}
}

// Text on the operator's color, links in it and the borders of buttons have the contrast
// that WCAG 2.2, 1.4.3 and 1.4.11, requires, whatever the color. The browser reports the colors that it draws.
func TestBrowserReadsTextInEachColor(t *testing.T) {
	b := newBrowser(t)
	names, addresses := b.previews(page.Options{Color: "rebeccapurple"}, "Acme", "en")
	b.opens(addresses[slices.Index(names, "login")])
	const drawn = `(() => {
		const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
		const main = document.querySelector('.main'), link = document.querySelector('.link'), paper = document.querySelector('main');
		const draw = (element, property) => {
			canvas.fillStyle = getComputedStyle(element)[property];
			canvas.fillRect(0, 0, 1, 1);
			return [...canvas.getImageData(0, 0, 1, 1).data];
		};
		const luminance = (rgba) => rgba.slice(0, 3)
			.map((part) => part / 255)
			.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
			.reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
		const contrast = (a, b) => {
			const [darker, lighter] = [luminance(a), luminance(b)].sort((a, b) => a - b);
			return (lighter + 0.05) / (darker + 0.05);
		};
		return {
			brand: draw(main, 'backgroundColor').join(),
			contrasts: () => [contrast(draw(main, 'color'), draw(main, 'backgroundColor')), contrast(draw(link, 'color'), draw(paper, 'backgroundColor')), contrast(draw(main, 'borderTopColor'), draw(paper, 'backgroundColor'))],
		};
	})()`
	if brand := b.eval(drawn + `.brand`); brand != "102,51,153,255" {
		t.Errorf("the button is %v, not rebeccapurple", brand)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.do(looking(scheme))
		unreadable := b.eval(`(() => {
			const colors = ['gray', '#767676', '#757575', 'transparent', 'nocolor', 'oklch(70% 0.4 150)', 'lch(50% 130 300)', 'lab(40 -90 90)'];
			for (const r of [0, 51, 102, 153, 204, 255]) for (const g of [0, 51, 102, 153, 204, 255]) for (const b of [0, 51, 102, 153, 204, 255]) colors.push('rgb(' + [r, g, b] + ')');
			return colors.map((color) => {
				document.documentElement.style.setProperty('--color', color);
				return [color, ...` + drawn + `.contrasts()];
			}).filter(([, button, link, border]) => !(button >= 4.5 && link >= 4.5 && border >= 3));
		})()`)
		for _, color := range unreadable.([]any) {
			t.Errorf("%s: color, contrast of the button's text, of a link and of the button's border: %v", scheme, color)
		}
		for _, color := range []string{"gold", "navy", "oklch(70% 0.4 150)", "gray"} {
			b.eval(`document.documentElement.style.setProperty('--color', '` + color + `')`)
			b.picture("color-" + strings.Fields(color)[0] + "-" + scheme)
		}
	}
}
