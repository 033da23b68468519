package api

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// An account shows and exports each field that operators can write.
func TestWrittenFieldsAreShownAndExported(t *testing.T) {
	for _, f := range record.Fields {
		if f.Secret {
			continue
		}
		var a record.Account
		var want any = "given"
		switch {
		case f.Flag != nil:
			want, *f.Flag(&a) = true, true
		case f.Time != nil:
			want, *f.Time(&a) = "2026-11-21T12:00:00Z", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
		default:
			*f.Text(&a) = "given"
		}
		for _, view := range []any{AccountOf(a), ExportedAccountOf(a, nil)} {
			data, err := json.Marshal(view)
			storetest.Must(t, err)
			var fields map[string]any
			storetest.Must(t, json.Unmarshal(data, &fields))
			if fields[f.Name] != want {
				t.Errorf("%T shows %s as %v, want %v", view, f.Name, fields[f.Name], want)
			}
		}
	}
}
