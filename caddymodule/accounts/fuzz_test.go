package accounts

import (
	"bytes"
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

// FuzzImportLine reads an account: what is taken, exported and read again is
// the same account.
func FuzzImportLine(f *testing.F) {
	for _, s := range []string{
		`{"profile_mnemocode":"a","primary_phone":"0037060012345","primary_email":"a@example.com","login_name":"A B","status":"closed","role":"x"}`,
		`{"profile_mnemocode":"a","password":"correct horse","must_set_password":true,"control_question":"Cat?","control_answer":"Tom"}`,
		`{"profile_mnemocode":"a","password_hash":"$2y$10$srNl09aPtc2qr.0Vl.NtjekJRt/NxRxYQm3qd3OvfcKsJgVnr6.Ve","second_factor":true,"created_at":"0000-01-01T00:00:00+01:00"}`,
		`{"profile_mnemocode":"a","password_hash":{"credentialData":"{\"hashIterations\":5,\"algorithm\":\"pbkdf2\"}","secretData":"{\"value\":\"MDEyMzQ1Njc4\",\"salt\":\"MDEyMzQ1Njc\"}"}}`,
		`{"profile_mnemocode":"a","oauth_identities":[{"provider_id":1,"subject":"x"},{"provider_id":5,"subject":"y"}],"disclaimers_accepted":[{"code":"terms","version":"","accepted_at":"9999-12-31T23:59:59-01:00"}]}`,
		`{"profile_mnemocode":"a","backup_code_hashes":["$argon2id$v=19$m=7168,t=5,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZg"],"control_question":"Cat?","control_answer_hash":"$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc"}`,
		`{"profile_mnemocode":null}`, `{"profile_mnemocode":"a","status":null}`, `{"profile_mnemocode":"a","\u0007":1}`, `{"profile_mnemocode":"a","updated_at":"x"}`,
		`{"profile_mnemocode":"a","profile_mnemocode":"b"}`, `{}{}`, `[]`, "{\"role\":\"\xff\"}", `{"profile_mnemocode":"a","created_at":"1969-12-31T23:59:59.999999999Z"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, change, err := imported(line)
		if err != nil {
			refused := asError(err)
			if refused.Status != http.StatusBadRequest || len(refused.Field) > 64 || refused.Field != printable(refused.Field) ||
				len(refused.Message) > 512 || printableText(refused.Message) != refused.Message {
				t.Errorf("%q: got %d %q %q", line, refused.Status, refused.Field, refused.Message)
			}
			return
		}
		if manage.CheckAccount(a, record.Account{}, password.Argon2id{}) != nil && change.Answer == "" {
			return // it would not be stored
		}
		if change.Answer != "" { // what is hashed has no way back
			a.Question, a.AnswerHash = "", ""
		}
		var exported bytes.Buffer
		if err := api.WriteLine(&exported, api.ExportedAccountOf(a, change.BackupCodes)); err != nil {
			t.Fatalf("%q can't be exported: %v", line, err)
		}
		again, changeAgain, err := imported(exported.Bytes())
		if err != nil {
			t.Fatalf("%q, exported as %q: %v", line, exported.Bytes(), err)
		}
		if !reflect.DeepEqual(a, again) || !slices.Equal(change.BackupCodes, changeAgain.BackupCodes) {
			t.Errorf("%q becomes %+v, exported as %q %+v", line, a, exported.Bytes(), again)
		}
	})
}

// imported is the account that a line makes, in as far as its secrets need no
// hashing.
func imported(line []byte) (record.Account, manage.Change, error) {
	a := record.Account{Status: record.StatusActive}
	change, err := parseChange(line, changeImport, false)
	if err != nil {
		return a, change, err
	}
	if err := change.Apply(&a); err != nil {
		return a, change, err
	}
	a.Accepted = change.Accepted
	a.Created = cmp.Or(a.Created.UTC(), time.Unix(1, 0).UTC())
	return a, change, nil
}

func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
