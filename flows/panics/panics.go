// Package panics turns panics into errors, in goroutines where a panic would end the
// process. It also keeps the values of panics out of the log. Start with Contain.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
)

// An Error describes a panic. The value of a panic may contain a secret, so an Error only
// contains the text of the runtime's own errors. Of other values it contains the type.
type Error struct {
	What  string
	Where string // function, file and line
	Stack string
}

func (p *Error) Error() string { return "panic at " + p.Where + ": " + p.What }

// Log logs the panic with args.
func (p *Error) Log(log *slog.Logger, args ...any) {
	log.Error("internal error; please report it", append(args, "panic", p.What, "stack", p.Stack)...)
}

// Recovered turns the result of recover into an Error, or nil if it is nil. Call it
// directly in the deferred function.
func Recovered(cause any) *Error {
	if cause == nil {
		return nil
	}
	what := fmt.Sprintf("a value of type %T", cause)
	if e, ok := cause.(runtime.Error); ok {
		what = e.Error()
	}
	return &Error{What: what, Where: origin(), Stack: string(debug.Stack())}
}

// Contain calls f and turns a panic into an error. Nothing else recovers a panic in a
// goroutine of our own: it would end the process.
func Contain(f func() error) (err error) {
	defer func() {
		if p := Recovered(recover()); p != nil {
			err = p
		}
	}()
	return f()
}

// ContainLogged is Contain, and logs a panic.
func ContainLogged(log *slog.Logger, doing string, f func() error) error {
	err := Contain(f)
	if p, ok := errors.AsType[*Error](err); ok {
		p.Log(log, "doing", doing)
	}
	return err
}

// origin returns the place of the panic: the first frame below it that is not the
// runtime's.
func origin() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	panicked := false
	for {
		frame, more := frames.Next()
		ofRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicked && !ofRuntime {
			return fmt.Sprintf("%s (%s:%d)", frame.Function, frame.File, frame.Line)
		}
		panicked = panicked || frame.Function == "runtime.gopanic"
		if !more {
			return "an unknown place"
		}
	}
}
