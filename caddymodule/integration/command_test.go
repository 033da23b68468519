package integration

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// An outcome is the result of a command.
type outcome struct {
	t         *testing.T
	args      []string
	out, errs string
	exit      int
}

// cli runs caddy mnemogate against the site.
func (s *site) cli(stdin string, args ...string) outcome {
	s.t.Helper()
	return s.cliAt("unix/"+s.dir+"/admin.sock", stdin, args...)
}

func (s *site) cliAt(address, stdin string, args ...string) outcome {
	s.t.Helper()
	if address != "" {
		args = append([]string{"--address", address}, args...)
	}
	cmd := s.caddy(append([]string{"mnemogate"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	o := outcome{t: s.t, args: args, out: out.String(), errs: errs.String()}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		o.exit = ended.ExitCode()
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (o outcome) want(exit int, parts ...string) outcome {
	o.t.Helper()
	if o.exit != exit {
		o.t.Fatalf("%v: exit status %d, want %d\n%s%s", o.args, o.exit, exit, o.out, o.errs)
	}
	for _, part := range parts {
		if !strings.Contains(o.out+o.errs, part) {
			o.t.Fatalf("%v: no %q in\n%s%s", o.args, part, o.out, o.errs)
		}
	}
	return o
}
