// Package panics makes errors of panics, where no request waits for what panics
// and the process would end, and so that no log tells what was panicked with.
// Start with Contain.
package panics

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
)

// An Error is an error made of a panic. What it panicked with can hold anything,
// also a secret, so of that only the runtime's own errors are told, and of the
// others the type.
type Error struct {
	What  string
	Where string // function, file and line
	Stack string
}

func (p *Error) Error() string { return "panic at " + p.Where + ": " + p.What }

// Log tells of the panic, with what args say of it.
func (p *Error) Log(log *slog.Logger, args ...any) {
	log.Error("a defect of this program, please report it", append(args, "panic", p.What, "stack", p.Stack)...)
}

// Recovered makes an Error of what recover has returned, nil of nil. It is called
// by the deferred function itself.
func Recovered(cause any) *Error {
	if cause == nil {
		return nil
	}
	what := fmt.Sprintf("a value of type %T", cause)
	if e, ok := cause.(runtime.Error); ok {
		what = e.Error()
	}
	return &Error{What: what, Where: whence(), Stack: string(debug.Stack())}
}

// Contain runs f and makes an error of a panic: where no request waits for f,
// nobody else would, and the process would end.
func Contain(f func() error) (err error) {
	defer func() {
		if p := Recovered(recover()); p != nil {
			err = p
		}
	}()
	return f()
}

// ContainLogged is Contain for what only the log hears of; the error is returned
// as well.
func ContainLogged(log *slog.Logger, doing string, f func() error) error {
	err := Contain(f)
	if p, ok := errors.AsType[*Error](err); ok {
		p.Log(log, "doing", doing)
	}
	return err
}

// whence is what panicked: the first that is not the runtime's below the panic.
func whence() string {
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
