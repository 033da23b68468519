package integration

import (
	"slices"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// errorsOf lists what a route may answer with.
func errorsOf(r *flows.Route) []*wire.Error {
	if r.TakesToken() {
		return slices.Concat(flows.Common, flows.TokenErrors, r.Fails)
	}
	return slices.Concat(flows.Common, r.Fails)
}
