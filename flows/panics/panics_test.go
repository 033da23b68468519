package panics_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/panics"
)

func TestPanicTellsNoValue(t *testing.T) {
	for name, c := range map[string]struct {
		f    func() error
		what string
	}{
		"a string":            {func() error { panic("hunter2") }, "a value of type string"},
		"an error":            {func() error { panic(errors.New("hunter2")) }, "a value of type *errors.errorString"},
		"the runtime's":       {func() error { return (map[string][]error{})["hunter2"][3] }, "index out of range [3] with length 0"},
		"nil":                 {func() error { panic(nil) }, "panic called with nil argument"},
		"an error, no panic":  {func() error { return context.Canceled }, ""},
		"nothing":             {func() error { return nil }, ""},
		"a nil pointer's use": {func() error { var p *panics.Error; p.What = "hunter2"; return nil }, "nil pointer dereference"},
	} {
		err := panics.Contain(c.f)
		p, ok := errors.AsType[*panics.Error](err)
		if ok != (c.what != "") {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if !ok {
			continue
		}
		if text := err.Error() + p.Stack; !strings.Contains(text, c.what) || strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", name, text)
		}
		if !strings.Contains(p.Where, "TestPanicTellsNoValue") {
			t.Errorf("%s: it was at %s", name, p.Where)
		}
	}
}
