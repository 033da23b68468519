package tenant

import (
	"encoding/json"
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"5/10m":     "5/10m",
		"30/300s":   "30/5m",
		"10/1d":     "10/24h",
		"1/90m":     "1/1h30m",
		"1/1s":      "1/1s",
		"1/1m30s":   "1/1m30s",
		"unlimited": "unlimited",
	} {
		var r Rate
		if err := r.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, _ := r.MarshalText(); string(got) != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "5", "5/", "/5m", "0/5m", "-1/5m", "5/0s", "5/-1m", "5/1m/2", "1.5/1m", "5/400d", "1000001/1h", "5 / 1m"} {
		if err := new(Rate).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`90000000000`: 90 * time.Second,
		`"90s"`:       90 * time.Second,
		`"30d"`:       30 * 24 * time.Hour,
		`"1d12h"`:     36 * time.Hour,
		`"0.5d1m"`:    12*time.Hour + time.Minute,
		`"-1d"`:       -24 * time.Hour,
		`null`:        0,
	} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s: got %v, %v, want %v", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{`""`, `"5"`, `"d"`, `"1.5.d"`, `"5 m"`, `1.5`, `true`, `{}`} {
		if err := json.Unmarshal([]byte(text), new(Duration)); err == nil {
			t.Errorf("%s passes", text)
		}
	}
	if got, _ := json.Marshal(Duration(90 * time.Second)); string(got) != "90000000000" {
		t.Errorf("it is written as %s", got)
	}
}
