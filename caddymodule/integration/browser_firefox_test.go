package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A firefox is a Firefox without a window. It speaks WebDriver BiDi
// (https://w3c.github.io/webdriver-bidi/).
type firefox struct {
	t       *testing.T
	conn    *websocket.Conn
	last    int    // id of the last command
	context string // the tab
}

func newFirefox(t *testing.T) *firefox {
	t.Helper()
	path, err := exec.LookPath("firefox-esr")
	if err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("%v: install firefox-esr", err))
	}
	const origin = "http://127.0.0.1"
	cmd := exec.Command(path, "--headless", "--no-remote", "--profile", t.TempDir(), "--remote-debugging-port=0", "--remote-allow-origins="+origin, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "MOZ_DISABLE_AUTO_SAFE_MODE=1")
	stderr := get(cmd.StderrPipe())(t)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		address, ok := strings.CutPrefix(lines.Text(), "WebDriver BiDi listening on ")
		if !ok {
			continue
		}
		go func() {
			for lines.Scan() {
			}
		}()
		f := &firefox{t: t, conn: get(websocket.Dial(address+"/session", "", origin))(t)}
		t.Cleanup(func() { _ = f.conn.Close() })
		f.call("session.new", map[string]any{"capabilities": map[string]any{}}, nil)
		var tree struct{ Contexts []struct{ Context string } }
		f.call("browsingContext.getTree", map[string]any{}, &tree)
		f.context = tree.Contexts[0].Context
		return f
	}
	t.Fatalf("firefox ended: %v", lines.Err())
	return nil
}

// call sends a command and waits for its result.
func (f *firefox) call(method string, params map[string]any, result any) {
	f.t.Helper()
	f.last++
	if f.context != "" {
		params["context"] = f.context
	}
	_ = f.conn.SetDeadline(time.Now().Add(patience))
	must(f.t, websocket.JSON.Send(f.conn, map[string]any{"id": f.last, "method": method, "params": params}))
	for {
		var answer struct {
			ID             int
			Result         json.RawMessage
			Error, Message string
		}
		if err := websocket.JSON.Receive(f.conn, &answer); err != nil {
			f.t.Fatalf("%s: %v", method, err)
		}
		if answer.ID != f.last {
			continue
		}
		if answer.Error != "" {
			f.t.Fatalf("%s: %s: %s", method, answer.Error, answer.Message)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				f.t.Fatalf("%s: %v: %s", method, err, answer.Result)
			}
		}
		return
	}
}

func (f *firefox) open(address string) {
	f.t.Helper()
	f.call("browsingContext.navigate", map[string]any{"url": address, "wait": "complete"}, nil)
}

func (f *firefox) eval(script string) any {
	f.t.Helper()
	var answer struct {
		Type             string
		Result           struct{ Value any }
		ExceptionDetails struct{ Text string }
	}
	f.call("script.evaluate", map[string]any{"expression": script, "target": map[string]any{"context": f.context}, "awaitPromise": true, "userActivation": true}, &answer)
	if answer.Type != "success" {
		f.t.Fatalf("%s: %s", script, answer.ExceptionDetails.Text)
	}
	return answer.Result.Value
}

func (f *firefox) waits(script string) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); f.eval("Boolean("+script+")") != true; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%s is not so within %v:\n%v", script, patience, f.eval(`location.href + '\n' + document.body?.innerText`))
		}
	}
}

// picture takes screenshots of the page in two sizes.
func (f *firefox) picture(name string) {
	f.t.Helper()
	if screenshots == "" {
		return
	}
	for width, height := range map[int]int{320: 640, 1280: 800} {
		f.call("browsingContext.setViewport", map[string]any{"viewport": map[string]any{"width": width, "height": height}}, nil)
		var shot struct{ Data []byte }
		f.call("browsingContext.captureScreenshot", map[string]any{"origin": "document"}, &shot)
		keepPicture(f.t, name, width, shot.Data)
	}
}
