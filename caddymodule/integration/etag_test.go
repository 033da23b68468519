package integration

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// Two editors cannot lose each other's change: of many that name one version, one succeeds.
func TestAnAccountIsChangedInTheVersionThatWasRead(t *testing.T) {
	t.Parallel()
	onEachDeployment(t, func(t *testing.T, start starter) {
		key := "key-of-the-editors"
		s := accountsSite(t, start, "key editors "+key+" {\nmay read write\n}", siteConfig{company: account("alice", "")})
		send := func(method, etag string, body any) answer {
			r := s.apiRequest(key, method, "acme/accounts/alice", body)
			if etag != "" {
				r.Header.Set("If-Match", etag)
			}
			a := s.do(r)
			checkInDocument(t, r, a)
			return a
		}
		shown := send("GET", "", nil).wantStatus(200)
		read := shown.Header.Get("ETag")
		won := 0
		for _, a := range storetest.Together(20, func(i int) answer { return send("PATCH", read, fields{"role": fmt.Sprint("role-", i)}) }) {
			if a.Status == http.StatusOK && a.Header.Get("ETag") != read {
				won++
			} else {
				a.wantStatus(http.StatusPreconditionFailed)
			}
		}
		if won != 1 {
			t.Errorf("%d editors succeeded with one version", won)
		}
		now := send("GET", "", nil).Header.Get("ETag")
		if again := send("PATCH", `"other", `+now, fields{"locale": "lt"}).wantStatus(200).Header.Get("ETag"); again == now || again != send("GET", "", nil).Header.Get("ETag") {
			t.Errorf("the ETag after the change is %s", again)
		}
		send("DELETE", now, nil).wantStatus(http.StatusPreconditionFailed)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(200)
		send("PATCH", "", fields{"locale": "fr"}).wantStatus(200)
		send("DELETE", send("GET", "", nil).Header.Get("ETag"), nil).wantStatus(204)
		send("PATCH", "*", fields{"locale": "de"}).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "*", nil).wantStatus(http.StatusPreconditionFailed)
		send("DELETE", "", nil).wantStatus(http.StatusNotFound)
		if created := s.api(key, "POST", "acme/accounts", fields{"profile_mnemocode": "bob"}).wantStatus(201); created.Header.Get("ETag") != s.api(key, "GET", "acme/accounts/bob", nil).Header.Get("ETag") {
			t.Error("a new account has another ETag")
		}
	})
}
