package accounts

import (
	"bytes"
	_ "embed" // openapi.json
	"net/http"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
)

// openAPIFile describes Routes. A test of package openapi writes it from Routes, the fields of
// accounts, the types of the responses, and openapi.yaml.
//
//go:embed openapi.json
var openAPIFile []byte

// openAPI answers with the OpenAPI document. Its server URL is the one that the
// client used.
func (c *Call) openAPI() error {
	document := openAPIFile
	if root := strings.TrimSuffix(c.root, "/"); root != "" {
		document = bytes.Replace(document, []byte(`"url": "/"`), []byte(`"url": "`+root+`"`), 1)
	}
	bodies.Write(c.W, http.StatusOK, "no-store", document)
	return nil
}
