package tenant

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Duration is a time.Duration in a configuration. In JSON it is a number of nanoseconds
// or a text, in which d is a day of 24 hours.
type Duration time.Duration

// String formats a duration as time.Duration does, but 10m0s as 10m and 720h as 30d.
func (d Duration) String() string {
	const day = Duration(24 * time.Hour)
	if d >= 2*day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// UnmarshalJSON parses nanoseconds or a text such as 30d.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return json.Unmarshal(data, (*int64)(d))
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := parseDuration(text)
	if err != nil {
		return unreadable[Duration](text, "write a number and its unit, as in 10m")
	}
	*d = Duration(parsed)
	return nil
}

// unreadable is an error to which encoding/json adds the name of the field.
func unreadable[T any](text, advice string) error {
	return &json.UnmarshalTypeError{Value: strconv.Quote(text) + " (" + advice + ")", Type: reflect.TypeFor[T]()}
}

var days = regexp.MustCompile(`[0-9.]+d`)

// parseDuration is time.ParseDuration with days.
func parseDuration(s string) (time.Duration, error) {
	return time.ParseDuration(days.ReplaceAllStringFunc(s, func(s string) string {
		n, err := strconv.ParseFloat(strings.TrimSuffix(s, "d"), 64)
		if err != nil {
			return s // time.ParseDuration refuses it
		}
		return strconv.FormatFloat(24*n, 'f', -1, 64) + "h"
	}))
}

// A Rate is a number of events in a window that the first event opens, written as in
// `5/10m` or `unlimited`. The zero Rate means that it is not set.
type Rate struct {
	N   int
	Per time.Duration
}

// Unlimited is the Rate that refuses nothing. Nothing is counted for it.
var Unlimited = Rate{N: -1}

const (
	// MaxEvents is the highest N of a Rate.
	MaxEvents = 1_000_000
	maxWindow = 366 * 24 * time.Hour

	unlimited = "unlimited"
)

// ErrRate means that a text is not a Rate.
var ErrRate = errors.New("write a number and a time, as in 5/10m")

// MarshalText formats a rate as in a Caddyfile.
func (r Rate) MarshalText() ([]byte, error) {
	if r == Unlimited {
		return []byte(unlimited), nil
	}
	return []byte(strconv.Itoa(r.N) + "/" + Duration(r.Per).String()), nil
}

// UnmarshalJSON parses a rate.
func (r *Rate) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil || text == nil {
		return err
	}
	if err := r.UnmarshalText([]byte(*text)); err != nil {
		return unreadable[Rate](*text, err.Error())
	}
	return nil
}

// UnmarshalText parses a rate.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == unlimited {
		*r = Unlimited
		return nil
	}
	number, per, _ := strings.Cut(string(text), "/")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > MaxEvents {
		return ErrRate
	}
	window, err := parseDuration(per)
	if err != nil || window <= 0 || window > maxWindow {
		return ErrRate
	}
	*r = Rate{N: n, Per: window}
	return nil
}
