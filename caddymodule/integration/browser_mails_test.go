package integration

import (
	"net/http/httptest"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/page"
)

// Every mail in every language fits into the narrowest window, loads nothing, and has
// nothing that axe finds in one mail of each form.
func TestBrowserSeesEveryMail(t *testing.T) {
	b := newBrowser(t)
	server := httptest.NewServer(get(page.Preview(page.Options{}, "Association of Friends of Extraordinarily Long Names", page.Mails{Color: "#ffcc00", Support: "https://acme.example/help"}))(t))
	t.Cleanup(server.Close)
	b.open(server.URL + "/preview/")
	wrong := b.eval(`(async () => {
		const types = await (await fetch('/mails')).json(), languages = await (await fetch('/languages')).json();
		const frames = types.flatMap((type) => languages.flatMap((language) => [320, 600].map((width) => {
			const frame = document.createElement('iframe');
			Object.assign(frame, { width, height: 300, src: '/mails/light/' + type + '?lang=' + language });
			return frame;
		})));
		const loaded = frames.map((frame) => new Promise((resolve) => { frame.onload = resolve; }));
		document.body.replaceChildren(...frames);
		await Promise.all(loaded);
		if (frames.length < 160) return [frames.length];
		return frames.filter(({ width, contentWindow: { performance }, contentDocument: { documentElement: shown } }) => (
			!shown.querySelector('h1') || !shown.lang || shown.scrollWidth > width || performance.getEntriesByType('resource').length > 0
		)).map(({ src }) => src);
	})()`)
	for _, mail := range wrong.([]any) {
		t.Errorf("wrong: %v", mail)
	}
	for _, kind := range []string{"recovery.link", "notice.passkey_added"} {
		b.open(server.URL + "/mails/auto/" + kind + "?lang=de")
		b.judge("mail-" + kind)
	}
}
