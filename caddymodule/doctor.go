package caddymodule

import "net/http"

func (c *adminCall) doctor() error {
	writeJSON(c.w, http.StatusOK, map[string]any{})
	return nil
}
