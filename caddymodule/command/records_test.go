package command

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

// allRecords reads records to the end, and checks their lines and that each is
// one line itself.
func allRecords(t *testing.T, from importRecords, data []byte) (records [][]byte) {
	t.Helper()
	last, lines := 0, bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+1
	for {
		line, record, err := from.Next()
		if err == io.EOF && line == 0 {
			return records
		}
		if line <= last || line > lines {
			t.Fatalf("%q: line %d follows line %d, with %q and %v", data, line, last, record, err)
		}
		last = line
		if err != nil {
			if len(err.Error()) > 512 {
				t.Errorf("%q: line %d: got %v", data, line, err)
			}
			continue
		}
		if len(bytes.TrimSpace(record)) == 0 || bytes.ContainsRune(record, '\n') || len(record) > api.MaxAccount {
			t.Errorf("%q: the record of line %d is %q", data, line, record)
		}
		records = append(records, bytes.Clone(record))
	}
}

// FuzzImportJSONL cuts a file into records: what is sent on is read there as it
// was read here.
func FuzzImportJSONL(f *testing.F) {
	for _, s := range []string{"{}\n\n{}", "\ufeff{}\r\n{}\r\n", "\n\n", "", "{}", "\u00a0\n\u2028x\n\x00\n", "a\rb\nc", "\ufeff\n\ufeff{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		records := allRecords(t, jsonRecords{api.NewLines(bytes.NewReader(data))}, data)
		if len(records) > 0 && bytes.HasPrefix(records[0], []byte("\ufeff")) {
			return // a second mark is none, and will be refused
		}
		sent := bytes.Join(records, []byte("\n"))
		if again := allRecords(t, jsonRecords{api.NewLines(bytes.NewReader(sent))}, sent); !reflect.DeepEqual(again, records) {
			t.Errorf("%q is sent as %q and read as %q", data, records, again)
		}
	})
}

// FuzzImportCSV makes JSON of records: one object a line, of the file's columns
// only, that the same parser reads as a file with JSON.
func FuzzImportCSV(f *testing.F) {
	for _, s := range []string{
		"profile_mnemocode,primary_email\na,a@example.com\n\nb,\n",
		"\ufeffprofile_mnemocode,second_factor,must_set_password\r\na,yes,0\r\nb,maybe,no\r\n",
		"profile_mnemocode,oauth_identities\na,1:x 2:y\nb,\"[{\"\"provider_id\"\":1,\"\"subject\"\":\"\"z\"\"}]\"\nc,x\n",
		"profile_mnemocode,disclaimers_accepted,backup_code_hashes\na,\"[\n]\",[]\nb,{,\n",
		"profile_mnemocode,password_hash\na,$2y$10$x\n\"b\n", "profile_mnemocode,role\n\"a\nb\",c\nd\ne,f,g\n\"h\"i,j\n",
		"role,role\n", "x\n", "profile_mnemocode\n\xff\n", " profile_mnemocode , role\na,b", "", "\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		from, err := newCSVRecords(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, record := range allRecords(t, from, data) {
			values := map[string]json.RawMessage{}
			if err := json.Unmarshal(record, &values); err != nil {
				t.Fatalf("%q: the record %q: %v", data, record, err)
			}
			for name := range values {
				if !slices.Contains(from.columns, name) {
					t.Errorf("%q: the record %q has %q", data, record, name)
				}
			}
		}
	})
}

// FuzzCSVCells writes an account as CSV: it is sent as the JSON of the same
// account, but that an empty cell is none.
func FuzzCSVCells(f *testing.F) {
	f.Add("a", "a@example.com", "+370 600 12345", "Who, \"me\"?\n")
	f.Add("", " ", "\ufeff", "\r\n")
	f.Add("=1+1", "[]", "{}", "\\")
	f.Fuzz(func(t *testing.T, mnemocode, email, phone, role string) {
		for _, s := range []string{mnemocode, email, phone, role} {
			if !utf8.ValidString(s) || rounded.MatchString(s) || strings.Contains(s, "\r") { // which CSV may take for a line's end
				return
			}
		}
		cell := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		file := "profile_mnemocode,primary_email,primary_phone,role\n" +
			strings.Join([]string{cell(mnemocode), cell(email), cell(phone), cell(role)}, ",") + "\n"
		records, err := newCSVRecords(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		_, record, err := records.Next()
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		given := map[string]string{"profile_mnemocode": mnemocode, "primary_email": email, "primary_phone": phone, "role": role}
		for name, s := range given {
			if s == "" {
				delete(given, name)
			}
		}
		var sent map[string]string
		if err := json.Unmarshal(record, &sent); err != nil || !maps.Equal(sent, given) {
			t.Errorf("%q is sent as %s, %v", file, record, err)
		}
	})
}
