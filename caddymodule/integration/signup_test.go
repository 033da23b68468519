package integration

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The programs for sign-ups in docs/examples/signup work: by phone and by email, up to an
// authorized session, in companies with and without disclaimers.
func TestSignUpsOfThePage(t *testing.T) {
	t.Parallel()
	for name, company := range map[string]string{"without disclaimers": "", "with disclaimers": disclaimers} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := accountsSite(t, startSite, allKeys, siteConfig{company: company})
			for _, program := range []string{"go run signup.go", "node signup.mjs"} {
				s.run(program, func(t *testing.T) { s.signsUp(t, strings.Fields(program)) })
			}
		})
	}
}

// signsUp runs a program, which creates the accounts erin-0005 and frank-0006.
func (s *site) signsUp(t *testing.T, command []string) {
	need(t, command[0])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = "../../docs/examples/signup"
	cmd.Env = append(os.Environ(), "ACCOUNTS_API="+s.URL+"/api", "ACCOUNTS_KEY="+keyOfAll, "AUTH_API="+s.URL, "API_KEY="+testKey)
	cmd.Stderr = os.Stderr
	stdin := get(cmd.StdinPipe())(t)
	stdout := get(cmd.StdoutPipe())(t)
	must(t, cmd.Start())
	var said []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		switch said = append(said, lines.Text()); lines.Text() { // the user has to read the message
		case "code":
			fmt.Fprintln(stdin, s.sms.last("otp.login", "code"))
		case "link":
			_, token, _ := strings.Cut(s.sms.last("welcome.link", "link"), "#")
			fmt.Fprintln(stdin, token)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(said, ", "), "code, authorized erin-0005, link, authorized frank-0006"; got != want {
		t.Errorf("it says %s, want %s", got, want)
	}
	for _, account := range []string{"erin-0005", "frank-0006"} {
		s.api(keyOfAll, "DELETE", "acme/accounts/"+account, nil).wantStatus(204)
	}
}
