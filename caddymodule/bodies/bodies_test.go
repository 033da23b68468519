package bodies

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// Like bufio.Reader, a handler may read again after the end of the body.
func TestARequestOutlivesItsStreamedBody(t *testing.T) {
	t.Parallel()
	answer := func(body io.Reader, stall time.Duration) string {
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
		response, err := http.Post(server.URL, "text/plain", body)
		storetest.Must(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		return fmt.Sprint(string(text), " ", err)
	}
	if got, want := answer(strings.NewReader("all"), 2*time.Second), "<nil> <nil> <nil> <nil>"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	slow, _ := io.Pipe()
	defer slow.Close()
	if got := answer(slow, 300*time.Millisecond); !strings.Contains(got, "i/o timeout") {
		t.Errorf("of a body that never ends: %s", got)
	}
}

// A client that does not read ends the answer, and one that reads slowly does not. Between two
// writes, an answer may pause for longer than stall.
func TestAStreamingAnswerWaitsForItsClientOnlyForAWhile(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		ended := make(chan error, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := Streaming(w, r, stall)
			fmt.Fprint(out, "begun ")
			time.Sleep(2 * stall)
			_, err := fmt.Fprint(out, r.Proto)
			for err == nil && r.URL.Path == "/endless" {
				_, err = out.Write(make([]byte, 1<<20))
			}
			ended <- err
		}))
		server.EnableHTTP2 = protocol == "HTTP/2.0"
		server.StartTLS()
		defer server.Close()
		response, err := server.Client().Get(server.URL)
		storetest.Must(t, err)
		if text, err := io.ReadAll(response.Body); string(text) != "begun "+protocol || err != nil {
			t.Errorf("%s: got %q, %v", protocol, text, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: of a client that reads: %v", protocol, err)
		}
		if response, err = server.Client().Get(server.URL + "/endless"); err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		select {
		case err = <-ended:
		case <-time.After(20 * time.Second):
		}
		if err == nil {
			t.Errorf("%s: the answer waits for a client that does not read", protocol)
		}
	}
}

// Over HTTP/1, what is left of a body would be read as a request.
func TestABodyThatIsGivenUpEndsTheConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer Limit(w, r)()
		body := Streamed(w, r, time.Second)
		_, err := io.CopyN(w, body, 1)
		storetest.Must(t, err)
	}))
	defer server.Close()
	response, err := http.Post(server.URL, "text/plain", strings.NewReader("all"))
	storetest.Must(t, err)
	defer response.Body.Close()
	if text, err := io.ReadAll(response.Body); string(text) != "a" || err != nil || !response.Close {
		t.Errorf("got %q, %v, and the connection stays open: %t", text, err, !response.Close)
	}
}
