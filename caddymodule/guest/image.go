package guest

import (
	"bytes"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// maxImage prevents a photo of 10 MB from being sent with each login.
const maxImage = 512 << 10

// ReadImage reads an image that a browser can show, and returns its media type. The
// first bytes determine the type.
func ReadImage(name string) (kind string, content []byte, err error) {
	content, err = ReadFile(name)
	if err != nil {
		return "", nil, err
	}
	if len(content) > maxImage {
		return "", nil, fmt.Errorf("%s has more than %d kB; make it smaller, since each login loads it", name, maxImage>>10)
	}
	kind = http.DetectContentType(content)
	if strings.EqualFold(path.Ext(name), ".svg") && bytes.Contains(content, []byte("<svg")) {
		kind = "image/svg+xml"
	}
	if !slices.Contains([]string{"image/svg+xml", "image/png", "image/jpeg", "image/webp", "image/gif", "image/x-icon"}, kind) {
		return "", nil, fmt.Errorf("%s is not an image that browsers can show; use SVG, PNG, JPEG, WebP, GIF or ICO", name)
	}
	return kind, content, nil
}
