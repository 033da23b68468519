package accounts

import (
	"bytes"
	_ "embed" // openapi.json
	"net/http"
	"strings"
)

// openAPIFile describes Routes. Its test makes it of them, of the fields that an
// account can have, and of the types that are answered.
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
