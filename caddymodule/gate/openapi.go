package gate

import (
	"bytes"
	_ "embed"
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows"
)

// documentPath is the path of the OpenAPI document below /{company_code}/.
const documentPath = "v2/openapi.json"

// serveDocument answers with the OpenAPI document of the auth routes. It requires
// the same API key as they do.
func (h *Handler) serveDocument(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	err = h.withService(r.Context(), func(service *flows.Service) error {
		_, _, err := service.Company(t.company, r.Header[apiKeyHeader])
		return err
	})
	if err == nil {
		bodies.Write(w, http.StatusOK, "no-store", h.document)
	}
	return nil, err
}

//go:embed openapi.json
var openAPIFile []byte

// openAPI returns the OpenAPI document of a site whose routes are below base. The
// embedded openapi.json is the document of a site without a base. A test of package openapi
// writes it from the tables of routes and errors, the Go types, and openapi.yaml.
func openAPI(base string) []byte {
	if base == "" {
		return openAPIFile
	}
	return bytes.Replace(openAPIFile, []byte(`"url": "/"`), []byte(`"url": "`+base+`"`), 1)
}
