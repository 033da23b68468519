package integration

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A logReader reads a log of a site from a pipe or socket, until it stalls.
type logReader struct {
	site *site
	from interface {
		io.Reader
		SetReadDeadline(time.Time) error
	}
}

func (r logReader) read() {
	_ = r.from.SetReadDeadline(time.Time{})
	go func() { _, _ = io.Copy(r.site, r.from) }()
}

func (r logReader) stall() { _ = r.from.SetReadDeadline(time.Now()) }

// If the reader of a log stalls, no request waits for it for more than 2 s. Health, a metric
// and, later, the log say so. Caddy still ends by SIGTERM. The requests that fill the log are
// not in Caddy's access log, for whose lines Caddy itself waits without limit.
func TestAStalledLogStopsNoRequest(t *testing.T) {
	t.Parallel()
	storetest.NeedLinux(t, "pipes")
	const audit = "log audit {\ninclude mnemogate.audit\noutput OUTPUT\n}\n"
	for name, c := range map[string]struct {
		log  string
		open func(*site) func() logReader // returns what opens the reader once Caddy runs
	}{
		"stderr": {"", func(s *site) func() logReader {
			r, w, err := os.Pipe()
			must(t, err)
			t.Cleanup(func() { _, _ = r.Close(), w.Close() })
			s.stderr = w
			reader := logReader{s, r}
			reader.read()
			return func() logReader { return reader }
		}},
		"FIFO": {strings.Replace(audit, "OUTPUT", "file DIR/fifo {\nroll_disabled\n}", 1), func(s *site) func() logReader {
			must(t, syscall.Mkfifo(s.dir+"/fifo", 0o600))
			fifo := get(os.OpenFile(s.dir+"/fifo", os.O_RDWR, 0))(t)
			t.Cleanup(func() { _ = fifo.Close() })
			return func() logReader { return logReader{s, fifo} }
		}},
		"net": {strings.Replace(audit, "OUTPUT", "net unix/DIR/log.sock", 1), func(s *site) func() logReader {
			ln := get(net.Listen("unix", s.dir+"/log.sock"))(t)
			t.Cleanup(func() { _ = ln.Close() })
			return func() logReader {
				conn := get(ln.Accept())(t)
				t.Cleanup(func() { _ = conn.Close() })
				return logReader{s, conn}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var open func() logReader
			s := startWith(t, &site{backend: newRawBackend(t), sms: newWebhookSink(t)}, func(s *site) string {
				open = c.open(s)
				config := siteConfig{company: people, site: "log\n@fill path /acme/v2/auth/login /health\nlog_skip @fill\nhandle_path /api/* {\nmnemogate_accounts {\n" + allKeys +
					"\n}\n}\nhandle {\nmnemogate {\nhealth /health\n}\nreverse_proxy BACKEND\n}"}.caddyfile("DIR", "SINK", "BACKEND")
				config = strings.Replace(config, "\tlog {\n\t\toutput stderr\n\t\tlevel DEBUG\n\t}\n", s.inserted(c.log), 1)
				return s.inserted(config)
			})
			reader := open()
			reader.read()
			timely := func(what string, ask func() answer) answer {
				t.Helper()
				stalls := storetest.WatchStalls()
				began := time.Now()
				a := ask()
				if took, delay := time.Since(began), stalls(); took > 2500*time.Millisecond+delay {
					t.Errorf("%s took %v, of which the machine was busy for %v", what, took, delay)
				}
				return a
			}
			health := func() int { return s.ask("GET", "/health", "").Status }
			fill := func() {
				t.Helper()
				reader.stall()
				for range 5000 {
					timely("a refused request", func() answer {
						r := s.postRequest("acme", "wrong", "auth/login", "", fields{"login_id": "frank"})
						r.Header.Set("User-Agent", strings.Repeat("x", 200))
						return s.do(r)
					}).want(wire.ErrAPIKeyInvalid)
					if health() == http.StatusServiceUnavailable && s.scrape()["mnemogate_log_stalled"] == 1 {
						return
					}
				}
				t.Fatal("health does not say that the log has stalled")
			}
			token := s.login("frank")
			fill()
			timely("a logout", func() answer { return s.post("auth/logout", token, nil) }).wantState(record.None)
			timely("a login", func() answer { token = s.login("frank"); return answer{} })
			timely("a request for the backend", func() answer { return s.get("/", token) }).wantStatus(http.StatusOK)
			timely("the accounts API", func() answer {
				return s.api(keyOfAll, "PATCH", "acme/accounts/alice", fields{"role": "editor"})
			}).wantStatus(http.StatusOK)
			if s.ask("GET", "/health?ready", "").Status != http.StatusOK {
				t.Error("balancers would take the node out")
			}
			metrics := s.scrape()
			if metrics["mnemogate_log_stalled"] != 1 || metrics["mnemogate_log_lines_lost_total"] < 5 {
				t.Errorf("stalled: %v, lost: %v", metrics["mnemogate_log_stalled"], metrics["mnemogate_log_lines_lost_total"])
			}
			if name != "stderr" { // Caddy logs requests to its admin endpoint there
				s.cli("", "doctor").want(1, "the output of a log does not take its lines")
			}
			reader.read()
			s.tells("log lines were lost")
			storetest.Eventually(t, 10*time.Second, "health", func() bool { return health() == http.StatusOK })
			fill()
			s.stop(syscall.SIGTERM)
		})
	}
}
