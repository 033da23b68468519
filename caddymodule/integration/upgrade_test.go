package integration

import (
	"bufio"
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// releasedFile returns a file that v0.1.0 has left in its stores. Alice is logged in
// and has a recovery link, carol waits for a code, and lou is locked. That version
// wrote the file; then all expiry times were changed to 2100.
func releasedFile(t *testing.T, name string) []byte {
	t.Helper()
	return get(os.ReadFile("../../store/testdata/v0.1.0/" + name))(t)
}

// released holds the tokens, code and link of v0.1.0's users.
type released struct{ live, ended, link, pending, code string }

// A deployment of v0.1.0 continues with this version, and users notice nothing. This is
// the one with SQLite; TestRollingUpgrade has one with two nodes.
func TestUpgradeFromTheRelease(t *testing.T) {
	t.Parallel()
	file := shortTempDir(t) + "/mnemogate.db"
	db := get(sql.Open("sqlite", "file:"+file))(t)
	_, err := db.Exec(string(releasedFile(t, "sqlite.sql")))
	must(t, errors.Join(err, db.Close()))
	s := startSite(t, siteConfig{stores: "store sqlite " + file, company: roomy})
	s.goesOn(released{
		live: "mgs_kFRWLCLoDn-KqvBL54iOOrDXFbxMOzheoDmYCVNB9-k", ended: "mgs_wvU-B3077MK0CDcgNZVbyQqb1TFWnhLo1wQGC10Pass",
		link: "mgl_kwM6WS15_TNikp8vvggwPwXsfiVNzAPe-8AcsLTSaDY", pending: "mgs_YEyc1PkKPIXi6IsLrxcNCax2lAue8e0-l2pQH17Func", code: "504276",
	})
}

var releasedToShared = released{
	live: "mgs_mzUW9NsC20bRf3UzF_E-wzgfwMmFfiIGFNcOxMV4LqI", ended: "mgs_xdlbkhg2uQIQYhGQZb9PwaPr0D343_hBm4uTaKyDrk4",
	link: "mgl_CJH0vYAj_SuGToLBSPz2sAywsfMeuS2wIMwxHzV2cE4", pending: "mgs_DaMmLwfpkDZ94hPUK6fll79WyNdUxOV2gAsXB_rFEng", code: "358308",
}

// restoreRelease restores the data of v0.1.0 on the servers.
func (s *servers) restoreRelease() {
	s.t.Helper()
	s.postgres.Restore(s.t, s.schema, bytes.ReplaceAll(releasedFile(s.t, "postgres.sql"), []byte("test1"), []byte(s.schema)))
	for lines := bufio.NewScanner(bytes.NewReader(releasedFile(s.t, "redis.jsonl"))); lines.Scan(); {
		var words []string
		must(s.t, json.Unmarshal(lines.Bytes(), &words))
		command := make([]any, len(words))
		for i, word := range words {
			command[i] = latin1(word)
		}
		s.redis.Ask(s.t, command...)
	}
}

// latin1 returns the text as Latin-1 bytes.
func latin1(text string) []byte {
	var b []byte
	for _, r := range text {
		b = append(b, byte(r))
	}
	return b
}

func (s *site) goesOn(r released) {
	s.t.Helper()
	s.get("/", r.live).wantStatus(200)
	s.get("/", r.ended).want(wire.ErrTokenInvalid)
	if got := s.admin("GET", "accounts/alice/sessions", nil).wantStatus(200); len(got.JSON["sessions"].([]any)) != 1 {
		s.t.Errorf("alice's sessions: %s", got.Body)
	}
	s.credentials("lou", testPassword).want(wire.ErrRestricted)
	s.post("auth/checkotp", r.pending, fields{"otp": r.code}).wantState(record.Authorized)
	pending := s.credentials("carol", testPassword).wantState(record.CheckOTP).token()
	s.post("auth/checkotp", pending, fields{"backup_code": "AAAAABBBBB"}).wantState(record.Authorized)
	account := s.admin("GET", "accounts/alice", nil).wantStatus(200).JSON
	if account["role"] != "tester" || account["primary_email"] != "alice@example.com" || account["control_question"] != "Cat?" {
		s.t.Errorf("alice is %v", account)
	}
	if got := s.admin("GET", "accounts/carol", nil).wantStatus(200).JSON; got["backup_codes_left"] != 1.0 {
		s.t.Errorf("carol is %v", got)
	}
	linked := s.post("auth/recovery/checklink", "", fields{"token": r.link}).wantState(record.RecoveryPassword).token()
	s.post("auth/setpassword", linked, fields{"new_password": "a much better secret"}).wantState(record.None)
	s.get("/", r.live).want(wire.ErrTokenInvalid)
	s.get("/", s.credentials("alice", "a much better secret").wantState(record.Authorized).token()).wantStatus(200)
	s.admin("POST", "accounts", fields{"profile_mnemocode": "dave", "primary_email": "dave@example.com"}).wantStatus(201)
	s.admin("DELETE", "accounts/carol", nil).wantStatus(204)
}
