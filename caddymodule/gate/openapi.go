package gate

import (
	"bytes"
	_ "embed"
	"net/http"
	"time"

	"github.com/mnemogate/mnemogate/flows"
)

// documentPath is where, behind /{company_code}/, the OpenAPI document is.
const documentPath = "v2/openapi.json"

// serveDocument answers with the OpenAPI document of the auth routes, which
// takes the API key that they take.
func (h *Handler) serveDocument(w http.ResponseWriter, r *http.Request, t target) {
	leaveUnread(w, r, time.Now().Add(bodyWithin))
	if err := h.mayReadDocument(r, t); err != nil {
		h.refuse(w, err)
		return
	}
	writeBody(w, http.StatusOK, h.document)
}

func (h *Handler) mayReadDocument(r *http.Request, t target) (err error) {
	defer h.contain(&err)
	if r.Method != http.MethodGet {
		return errDocumentMethod
	}
	service, err := h.service(r.Context())
	if err == nil {
		_, err = service.Company(t.company, r.Header[apiKeyHeader])
	}
	return err
}

// errDocumentMethod is ErrMethod where only GET will do.
var errDocumentMethod = &flows.Error{
	Code:    flows.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "Use GET.",
}

//go:embed openapi.json
var openAPIFile []byte

// openAPI returns the OpenAPI document of a site whose routes lie below base.
// openapi.json is it for a site without a base; its test makes it of the table
// of the routes.
func openAPI(base string) []byte {
	if base == "" {
		return openAPIFile
	}
	return bytes.Replace(openAPIFile, []byte(`"url": "/"`), []byte(`"url": "`+base+`"`), 1)
}
