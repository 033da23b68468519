package accounts

import (
	"bytes"
	_ "embed" // openapi.json
	"net/http"
	"strings"
)

// openAPIFile describes Routes. It is written by hand; its test compares it with
// them, with the fields of accounts, and with the types that are answered.
//
//go:embed openapi.json
var openAPIFile []byte

// openAPI answers with the OpenAPI document, as of where the client found it.
func (c *Call) openAPI() error {
	document := openAPIFile
	if root := strings.TrimSuffix(c.root, "/"); root != "" {
		document = bytes.Replace(document, []byte(`"url": "/"`), []byte(`"url": "`+root+`"`), 1)
	}
	c.writeBody(http.StatusOK, document)
	return nil
}
