package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

// A FinalError is the error of a Sender whose gateway answered that it will not take the
// message. No other gateway is asked.
type FinalError struct {
	Err  error
	Gone bool // the built-in receiver of events answered 410: it wants none any more
}

// Error implements error.
func (e *FinalError) Error() string { return textOf(e.Err, "the gateway does not take it") }

// Unwrap returns the cause.
func (e *FinalError) Unwrap() error { return e.Err }

// A Gateway is one of several Senders of SMS or of mails.
type Gateway struct {
	Sender
	Name      string   // in metrics, the audit log and doctor
	Countries []string // prefixes, such as +370, of the phones that it serves; empty for all

	failed atomic.Pointer[time.Time] // when it failed last, on the monotonic clock, which nobody sets
}

func (g *Gateway) serves(to string) bool {
	return len(g.Countries) == 0 || slices.ContainsFunc(g.Countries, func(prefix string) bool { return strings.HasPrefix(to, prefix) })
}

// Bounds of Gateways (contract, section 27).
const (
	inAll     = 10 * time.Second // for all gateways of a message together, where there are several
	inOne     = time.Minute      // for one alone
	askedLast = 30 * time.Second // for a gateway that failed
)

// Gateways is a Sender that asks gateways in their order, until one takes the message or
// refuses it with a FinalError. A gateway that failed is asked last for 30 s.
type Gateways []*Gateway

// Serving returns the gateways that serve a phone or address, in the order in which to ask
// them now.
func (g Gateways) Serving(to string) Gateways {
	serving := slices.DeleteFunc(slices.Clone(g), func(g *Gateway) bool { return !g.serves(to) })
	now := time.Now()
	failing := func(g *Gateway) int {
		if failed := g.failed.Load(); failed != nil && now.Sub(*failed) < askedLast {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(serving, func(a, b *Gateway) int { return cmp.Compare(failing(a), failing(b)) })
	return serving
}

// Serves reports whether a sender serves a phone. Only Gateways may serve some phones only.
func Serves(s Sender, phone string) bool {
	g, several := s.(Gateways)
	return !several || len(g.Serving(phone)) > 0
}

// Reaches reports whether a sender serves some of the phones that begin with a prefix.
func Reaches(s Sender, prefix string) bool {
	g, several := s.(Gateways)
	return !several || slices.ContainsFunc(g, func(g *Gateway) bool {
		within := func(country string) bool { return strings.HasPrefix(country, prefix) }
		return g.serves(prefix) || slices.ContainsFunc(g.Countries, within)
	})
}

// Send implements Sender. If several gateways failed, its error is a LaterError only if none
// of them can have taken the message.
func (g Gateways) Send(ctx context.Context, m Message) error {
	client, limit := ctx, inOne
	if len(g) > 1 {
		limit = inAll
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	failed := errors.New("no gateway serves this phone: add its calling code to countries of one")
	for i, gateway := range g.Serving(m.To) {
		if i > 0 && ctx.Err() != nil {
			break // there is no time to ask this one, so it has not failed
		}
		err := panics.Contain(func() error { return gateway.Send(ctx, m) })
		if asked, ok := ctx.Value(askedKey{}).(func(string, error)); ok {
			asked(gateway.Name, err)
		}
		if _, final := errors.AsType[*FinalError](err); err == nil || final || client.Err() != nil {
			if err != nil && i > 0 {
				err = fmt.Errorf("%w; %v", err, failed)
			}
			return err
		}
		gateway.failed.Store(new(time.Now()))
		if i == 0 {
			failed = err
			continue
		}
		former, waits := errors.AsType[*LaterError](failed)
		later, both := errors.AsType[*LaterError](err)
		if waits && !(both && former.Wait < later.Wait) { // the sooner of two
			failed, err = err, failed
		}
		failed = fmt.Errorf("%w; %v", failed, err)
	}
	return failed
}

type askedKey struct{}

// WhenAsked returns a context with which Gateways call f after each gateway that they ask,
// with the gateway's name and error.
func WhenAsked(ctx context.Context, f func(gateway string, err error)) context.Context {
	if before, ok := ctx.Value(askedKey{}).(func(string, error)); ok {
		then := f
		f = func(gateway string, err error) { before(gateway, err); then(gateway, err) }
	}
	return context.WithValue(ctx, askedKey{}, f)
}
