package gate

import (
	"flag"
	"net/http"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

var update = flag.Bool("update", false, "write the JSON of testdata/*.caddyfiletest and openapi.json anew")

const someToken = "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// client follows no redirects, as no API client should have to.
var client = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// errorsOf lists what a route may answer with.
func errorsOf(r *flows.Route) []*wire.Error {
	if r.TakesToken() {
		return slices.Concat(flows.Common, flows.TokenErrors, r.Fails)
	}
	return slices.Concat(flows.Common, r.Fails)
}

const openAPIName = "openapi.json"
