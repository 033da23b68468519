package bodies

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Like bufio.Reader, a handler may read again after the end of the body.
func TestARequestOutlivesItsStreamedBody(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := Streamed(w, r, stall)
		for range 2 {
			_, err := io.Copy(io.Discard, body)
			fmt.Fprint(w, err, " ")
		}
		select {
		case <-r.Context().Done():
		case <-time.After(2 * stall):
		}
		fmt.Fprint(w, r.Context().Err())
	}))
	defer server.Close()
	answer := func(body io.Reader) string {
		response, err := http.Post(server.URL, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return fmt.Sprint(string(text), " ", err)
	}
	if got, want := answer(strings.NewReader("all")), "<nil> <nil> <nil> <nil>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	slow, _ := io.Pipe()
	defer slow.Close()
	if got := answer(slow); !strings.Contains(got, "i/o timeout") {
		t.Errorf("of a body that never ends: %s", got)
	}
}
