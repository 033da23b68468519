package integration

import (
	"bufio"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// The programs for sign-ups in docs/examples/signup work: by phone and by email, up to an
// authorized session, in companies with and without disclaimers. The addresses of their users
// are limited, not that of the programs.
func TestSignUpsOfThePage(t *testing.T) {
	t.Parallel()
	need(t, "go")
	w := newWorkshop(t, nil)
	for file, wait := range map[string][]string{"signup.go": {"40 * time.Second", "3 * time.Second"}, "signup.mjs": {"40_000", "3_000"}} {
		program := string(get(os.ReadFile("../../docs/examples/signup/" + file))(t))
		program = changed(t, program, append(wait, "frank-0006", franks)...)
		must(t, os.WriteFile(w.dir+"/"+file, []byte(program), 0o600))
	}
	inGo := w.dir + "/signup"
	output(t, exec.Command("go", "build", "-o", inGo, inGo+".go"))
	for name, c := range map[string]struct {
		company string
		kills   int
	}{
		"without disclaimers": {"", 0},
		"with disclaimers":    {disclaimers, 7}, // after the answer to each request
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := accountsSite(t, startSite, allKeys, siteConfig{company: c.company + "limits {\nsms_per_account unlimited\nsms_per_phone unlimited\nsms_per_address 20/1h\nmails_per_account unlimited\n}"})
			for program, command := range map[string][]string{"signup.go": {inGo}, "signup.mjs": {"node", inGo + ".mjs"}} {
				s.run(program, func(t *testing.T) {
					for killedAt := range 1 + c.kills {
						s.signsUp(t, command, killedAt)
					}
					s.signsUp(t, command, mistyped)
				})
			}
		})
	}
}

const (
	mistyped = -1
	franks   = "frank/0006?" // a mnemocode that must be encoded in a path
)

// signsUp runs a program, which creates the accounts erin-0005 and franks. It is killed
// when the accounts API has answered this request of it, but before it gets the answer (0 for
// none, mistyped if its user instead types a wrong code, so that it fails). Then it starts
// again, and does nothing twice. If it is not killed, one answer breaks off, and one is late.
func (s *site) signsUp(t *testing.T, command []string, killedAt int) {
	need(t, command[0])
	var cmd *exec.Cmd
	requests := 0
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(get(url.Parse(s.URL))(t)) }}).ServeHTTP(answer, r)
		if requests++; requests == killedAt {
			_ = cmd.Process.Kill()
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		switch {
		case killedAt == 0 && requests == 1:
			_, _ = w.Write(answer.Body.Bytes()[:9])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case killedAt == 0 && requests == 3:
			<-r.Context().Done()
		}
		_, _ = w.Write(answer.Body.Bytes())
	}))
	defer between.Close()
	start := func() *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "ACCOUNTS_API="+between.URL+"/api", "ACCOUNTS_KEY="+keyOfAll, "AUTH_API="+s.URL, "API_KEY="+testKey,
			fmt.Sprint("SIGN_UP_ID=", t.Name(), killedAt))
		cmd.Stderr = t.Output() // see runReceiver
		return cmd
	}
	mails, codes := len(s.sms.of("welcome.link")), len(s.sms.of("contact.code"))
	// talk starts the program, and reads the messages as its user, who may type a wrong code
	// from a mail. It returns what the program says.
	talk := func(mistypes bool) (said []string, err error) {
		cmd = start()
		stdin := get(cmd.StdinPipe())(t)
		stdout := get(cmd.StdoutPipe())(t)
		must(t, cmd.Start())
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			switch said = append(said, lines.Text()); lines.Text() {
			case "contact code":
				to := []string{"+37060000005", "frank@example.com"}[strings.Count(strings.Join(said, " "), "contact code")-1]
				sent := slices.DeleteFunc(s.sms.of("contact.code"), func(m map[string]any) bool { return m["to"] != to })
				code := sent[len(sent)-1]["code"].(string)
				if mistypes && to == "frank@example.com" {
					code = wrong(code)
				}
				fmt.Fprintln(stdin, code[:3]+" "+code[3:])
			case "code":
				fmt.Fprintln(stdin, s.sms.last("otp.login", "code"))
			case "link":
				_, token, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
				fmt.Fprintln(stdin, token)
			}
		}
		return said, cmd.Wait()
	}
	if killedAt == mistyped {
		if said, err := talk(true); err == nil {
			t.Fatalf("with a wrong code, it says %v", said)
		}
	}
	if killedAt > 0 {
		if _, err := talk(false); err == nil || requests != killedAt {
			t.Fatalf("it was not killed: %v after %d requests", err, requests)
		}
	}
	said, err := talk(false)
	if err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(said, ", "), "contact code, contact code, code, authorized erin-0005, link, authorized "+franks; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
	if n := len(s.sms.of("contact.code")) - codes; n != 2 {
		t.Errorf("%d codes to prove contacts, want 2", n)
	}
	if n := len(s.sms.of("welcome.link")) - mails; n != 1 {
		t.Errorf("%d welcome mails, want 1", n)
	}
	for _, account := range []string{"erin-0005", franks} {
		s.api(keyOfAll, "DELETE", "acme/accounts/"+url.PathEscape(account), nil).wantStatus(204)
	}
}
