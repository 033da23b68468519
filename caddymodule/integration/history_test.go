package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// history returns the history of an account from the admin endpoint, newest first. It
// waits until there are n events: if the store is slow, answers do not wait for it.
func (s *site) history(mnemocode string, n int) (events []map[string]string) {
	s.t.Helper()
	storetest.Eventually(s.t, 20*time.Second, fmt.Sprint(n, " events in the history of ", mnemocode), func() bool {
		var answer struct{ Events []map[string]any }
		must(s.t, json.Unmarshal(s.all()[0].admin("GET", "accounts/"+mnemocode+"/history?limit=1000", nil).wantStatus(200).Body, &answer))
		events = nil
		for _, event := range answer.Events {
			texts := map[string]string{}
			for name, value := range event {
				texts[name] = fmt.Sprint(value)
			}
			events = append(events, texts)
		}
		return len(events) >= n
	})
	return events
}

func named(events []map[string]string) []string {
	var names []string
	for _, e := range events {
		names = append(names, strings.TrimPrefix(e["event"], "mnemogate."))
	}
	return names
}

// Operators can see the history of an account: logins, wrong passwords, locks,
// changes and revoked sessions, and nothing of other accounts. What the store
// has taken stays after a crash.
func TestHistoryOfAnAccount(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		t.Parallel()
		s := start(t, siteConfig{company: "captcha off\nlimits {\nlock_after 2\n}\n" + account("alice", "") + account("bob", "")})
		node, last := s.all()[0], s.all()[len(s.all())-1]
		node.post("auth/login", "", fields{"login_id": "alice"}) // this leaves no event
		token := node.login("alice")
		node.cli("", "account", "set", "alice", "--role", "tester").want(0)
		s.get("/", token).want(wire.ErrTokenInvalid)
		for range 3 { // at one node: equal events that come one after another are one entry
			node.credentials("alice", "a wrong password")
		}
		events := s.history("alice", 8)
		all := strings.Join(named(events), " ")
		if strings.Count(all, "checkcredentials.failure") != 3 || strings.Count(all, "lock.password") != 1 {
			t.Errorf("not two wrong passwords, a lock and what it refused: %s", all)
		}
		if !strings.HasSuffix(all, " account.changed session.ended checkcredentials.success account.created") || strings.Contains(all, " login.") {
			t.Errorf("got %s", all)
		}
		for _, e := range events {
			switch name := strings.TrimPrefix(e["event"], "mnemogate."); {
			case strings.HasPrefix(name, "check") && (e["user_agent"] != "Go-http-client/1.1" || e["address"] != "127.0.0.1"):
				t.Errorf("%v does not tell who it was", e)
			case name == "account.changed" && (e["actor"] != record.ActorAdmin || e["reason"] != "role (tester)" || e["address"] != ""):
				t.Errorf("%v does not tell what, and by whom", e)
			case name == "checkcredentials.success" && (e["session_id"] == "" || e["session_state"] != "authorized"):
				t.Errorf("%v does not tell what began", e)
			}
		}
		if got := named(s.history("bob", 1)); fmt.Sprint(got) != "[account.created]" {
			t.Errorf("bob's history: %v", got)
		}
		node.admin("GET", "accounts/nobody/history", nil).wantStatus(404)
		node.admin("GET", "accounts/alice/history?limit=0", nil).wantStatus(400)

		last.login("bob")
		s.history("bob", 2)
		node.restart()
		if got := named(s.history("bob", 2)); fmt.Sprint(got) != "[checkcredentials.success account.created]" {
			t.Errorf("bob's history after a crash: %v", got)
		}
		node.cli("", "account", "history", "bob", "--limit", "1").want(0, "TIME", "checkcredentials.success  authorized  pwd     127.0.0.1", "Go-http-client/1.1")
		node.cli("", "account", "history", "bob", "--json").want(0, `"event":"mnemogate.account.created"`)
		node.cli("", "account", "history", "nobody").want(2)
		node.cli("", "account", "delete", "bob", "--yes").want(0)
		node.cli("", "account", "add", "bob").want(0)
		if got := named(s.history("bob", 1)); fmt.Sprint(got) != "[account.created]" {
			t.Errorf("the history of who came after bob: %v", got)
		}
	})
}

func TestHistoryFromTheAccountsAPI(t *testing.T) {
	t.Parallel()
	s := accountsSite(t, startSite, allKeys+"\nkey support reads-and-lists {\nmay read sessions\n}",
		siteConfig{company: account("alice", "") + account("bob", "email bob@example.com")})
	// Support needs to see when, from where and with which browser users logged in. Session ids
	// need the right to list sessions.
	s.login("alice")
	s.history("alice", 2)
	for key, named := range map[string]bool{keyOfAll: true, "reads-and-lists": true, "reads-and-nothing-else": false} {
		var answer struct{ Events []map[string]string }
		must(t, json.Unmarshal(s.api(key, "GET", "acme/accounts/alice/history", nil).wantStatus(200).Body, &answer))
		if login := answer.Events[0]; (login["session_id"] != "") != named || login["address"] != "127.0.0.1" || login["user_agent"] == "" {
			t.Errorf("%s is told %v", key, login)
		}
	}
	// The revocation of a mailed link shows without the state of the link, which is not a state
	// of the protocol.
	s.post("auth/recovery/recover", "", fields{"login_id": "bob", "captcha_response": "any", "method": "MAIL"}).wantState(record.None)
	s.api(keyOfAll, "PATCH", "acme/accounts/bob", fields{"role": "tester"}).wantStatus(http.StatusOK)
	s.history("bob", 4)
	a := s.api(keyOfAll, "GET", "acme/accounts/bob/history", nil).wantStatus(http.StatusOK)
	if !strings.Contains(string(a.Body), "session.ended") || strings.Contains(string(a.Body), string(record.MailedLink)) {
		t.Errorf("got %s", a.Body)
	}
}

// If a store can't take history, requests do not wait long for it.
func TestHistoryHoldsUpNobody(t *testing.T) {
	t.Parallel()
	servers := sharedServers(t)
	s := servers.start(siteConfig{company: roomy + account("alice", "")}, servers.direct())
	s.login("alice")
	servers.postgres.Exec(t, "ALTER TABLE "+servers.schema+".history RENAME TO away")
	watch := storetest.StartWatch()
	for range 5 {
		s.login("alice")
	}
	if took := watch.Took(); took > 5*time.Second {
		t.Errorf("five logins took %s", took)
	}
	s.nodes[0].tells("recording account history")
	if s.nodes[0].scrape()["mnemogate_defects_total"] == 0 {
		t.Error("no metric tells of it")
	}
	servers.postgres.Exec(t, "ALTER TABLE "+servers.schema+".away RENAME TO history")
	if got := named(s.history("alice", 7)); len(got) != 7 {
		t.Errorf("got %v", got)
	}
}

// What one session can repeat without end pushes nothing else out of a history: a thief could
// wash away what else happened.
func TestASessionCannotWashAHistoryAway(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: roomy + account("alice", ""), handler: selfService})
	s.cli("", "account", "set", "alice", "--role", "tester").want(0)
	token := s.login("alice")
	s.history("alice", 3)
	const secrets = 10
	for i := range 150 {
		_, set := s.session("POST", "acme", sessionKey+bearer(token)+fmt.Sprintf("User-Agent: thief/%d\r\n", i))
		token = set.Value
		if i < secrets { // more are refused
			s.me("POST", "totp", token, fields{}).wantStatus(200)
		}
	}
	var events []map[string]string
	storetest.Eventually(t, 20*time.Second, "event of the last move", func() bool {
		events = s.history("alice", 4)
		return slices.ContainsFunc(events, func(e map[string]string) bool { return e["user_agent"] == "thief/149" })
	})
	all := strings.Join(named(events), " ")
	if !strings.HasSuffix(all, " checkcredentials.success account.changed account.created") || strings.Count(all, "session.moved") != record.HistoryKeptApart {
		t.Errorf("got %s", all)
	}
	shown := slices.IndexFunc(events, func(e map[string]string) bool { return e["event"] == record.AccountTOTP })
	if shown < 0 || events[shown]["count"] != fmt.Sprint(secrets) || strings.Count(all, "account.totp") != 1 {
		t.Errorf("%d secrets of an app are %v", secrets, events[max(0, shown)])
	}
	s.cli("", "account", "history", "alice").want(0, "COUNT", "account.totp", "account.created")
}
