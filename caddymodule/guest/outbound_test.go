package guest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// What a proxy of the environment refuses has not reached the server behind it, whose fault it
// is not.
func TestAProxyThatRefusesIsNamed(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusProxyAuthRequired) }))
	defer proxy.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for address, want := range map[string]string{
		proxy.URL: "proxyconnect tcp: the proxy answered 407; check the proxy that HTTPS_PROXY names, with its user and password: its log may say why",
		gone.URL:  "proxyconnect tcp: dial tcp " + gone.Listener.Addr().String() + ": connect: connection refused; nothing listens there: check that the address and port are right, and that it runs",
	} {
		transport := newTransport()
		transport.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(address) }
		_, err := (&http.Client{Transport: transport}).Get("https://gateway.example")
		if got := Cause(err); got == nil || got.Error() != want || !MaySendAgain(got) {
			t.Errorf("%v, and it may be sent again: %v; want %s", got, MaySendAgain(got), want)
		}
	}
}
