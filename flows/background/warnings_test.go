package background_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestAnOutageWritesTenLinesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		var warnings background.Warnings
		log := slog.New(slog.NewTextHandler(&lines, nil))
		warn := func() (written []string) {
			lines.Reset()
			for range 1000 {
				warnings.Warn(log, "away", "error", "none")
			}
			return strings.Split(strings.TrimSpace(lines.String()), "\n")
		}
		if got := warn(); len(got) != 10 || strings.Contains(lines.String(), "omitted") {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Second)
		got := warn()
		if len(got) != 10 || !strings.HasSuffix(got[0], " msg=away error=none omitted=990") || strings.Contains(got[1], "omitted") {
			t.Errorf("a second later: %q", got)
		}
	})
}

// A failure hides neither another one nor the same one of another company. Companies that
// strangers invent, or all of a large site, neither fill the log nor the memory.
func TestAFailureHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		var warnings background.Warnings
		log := slog.New(slog.NewTextHandler(&lines, nil))
		fail := func(company, doing string) {
			warnings.Unanswered(t.Context(), log, wire.Unavailable(doing, errors.New("no answer")), "company", company)
		}
		for range 1000 {
			fail("acme", "asking the provider")
		}
		lines.Reset()
		fail("acme", "sending the code")
		fail("zeta", "asking the provider")
		warnings.Warn(log, "away", "company", "acme")
		if got := lines.String(); strings.Count(got, "\n") != 3 || strings.Contains(got, "omitted") {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Second)
		lines.Reset()
		fail("acme", "asking the provider")
		if got := lines.String(); !strings.Contains(got, "omitted=990") {
			t.Errorf("%q", got)
		}
		for i := range 20_000 {
			fail(strconv.Itoa(i), "loading the store's secrets")
		}
		lines.Reset()
		for i := range 20_000 {
			fail(strconv.Itoa(-i), "loading the store's secrets")
		}
		fail("acme", "sending the mail")
		if got := lines.String(); strings.Count(got, "\n") > 301 || !strings.Contains(got, "sending the mail") {
			t.Errorf("after 20000 companies: %q", got)
		}
	})
}

// A minute begins with its first line, so that two lines are never closer.
func TestStrangersCauseALineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		var warnings background.Warnings
		log := slog.New(slog.NewTextHandler(&lines, nil))
		time.Sleep(59 * time.Second) // to the end of a minute of the clock
		for range 120 {
			warnings.WarnOfStrangers(log, "they come")
			time.Sleep(time.Second)
		}
		if n := strings.Count(lines.String(), "they come"); n != 2 || !strings.Contains(lines.String(), "omitted=59") {
			t.Errorf("%d lines in two minutes:\n%s", n, &lines)
		}
	})
}

// Support finds the line by the ref that the user sees.
func TestAnUnansweredRequestIsLoggedWithItsRef(t *testing.T) {
	var lines bytes.Buffer
	var warnings background.Warnings
	log := slog.New(slog.NewTextHandler(&lines, nil))
	err := wire.WithRef(wire.Unavailable("asking", errors.New("no answer")))
	warnings.Unanswered(t.Context(), log, err, "company", "acme")
	if got := lines.String(); !strings.Contains(got, `msg="a service did not answer" company=acme ref=`+wire.RefOf(err)+" error=") {
		t.Errorf("%q", got)
	}
}
