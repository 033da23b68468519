package message

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

type senderFunc func(context.Context, Message) error

func (f senderFunc) Send(ctx context.Context, m Message) error { return f(ctx, m) }

// Gateways are asked in order until one takes the message or refuses it. One that failed is
// asked last for 30 s.
func TestGatewaysAreAskedInOrder(t *testing.T) {
	broken, full, no := errors.New("broken"), &LaterError{Err: errors.New("full"), Wait: time.Minute}, &FinalError{Err: errors.New("no")}
	for name, test := range map[string]struct {
		first, second error
		asked, next   string // of a message, and of another one 29 s later
		want          string
		later         bool
	}{
		"the first takes it":      {nil, nil, "a", "a", "", false},
		"the first is broken":     {broken, nil, "a b", "b", "", false},
		"the first is full":       {full, nil, "a b", "b", "", false},
		"the first says no":       {no, nil, "a", "a", "no", false},
		"both are broken":         {broken, broken, "a b", "a b", "broken; broken", false},
		"both are full":           {full, full, "a b", "a b", "full; full", true},
		"one may have taken it":   {broken, full, "a b", "a b", "broken; full", false},
		"the other may have, too": {full, broken, "a b", "a b", "broken; full", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				results := map[string]error{"a": test.first, "b": test.second}
				g := Gateways{}
				for _, name := range []string{"a", "b"} {
					g = append(g, &Gateway{Name: name, Sender: senderFunc(func(context.Context, Message) error { return results[name] })})
				}
				send := func() (asked []string, err error) {
					err = g.Send(WhenAsked(t.Context(), func(name string, err error) {
						if err != results[name] {
							t.Errorf("%s: %v", name, err)
						}
						asked = append(asked, name)
					}), Message{})
					return asked, err
				}
				asked, err := send()
				if got := strings.Join(asked, " "); got != test.asked || (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
					t.Errorf("asked %s: %v", got, err)
				}
				if later, ok := errors.AsType[*LaterError](err); ok != test.later || ok && later.Wait != time.Minute {
					t.Errorf("later: %v", err)
				}
				time.Sleep(29 * time.Second)
				if asked, _ = send(); strings.Join(asked, " ") != test.next {
					t.Errorf("then asked %v", asked)
				}
				time.Sleep(31 * time.Second)
				if asked, _ = send(); strings.Join(asked, " ") != test.asked {
					t.Errorf("at last asked %v", asked)
				}
			})
		})
	}
}

// A gateway that panics is one that failed: the next one is asked. The error has no value of
// the panic.
func TestAGatewayThatPanicsHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bomb := &Gateway{Name: "bomb", Sender: senderFunc(func(context.Context, Message) error { panic("hunter2") })}
		good := &Gateway{Name: "good", Sender: senderFunc(func(context.Context, Message) error { return nil })}
		g := Gateways{bomb, good}
		if err := g.Send(t.Context(), Message{}); err != nil || g.Serving("")[0] != good {
			t.Errorf("%v, and %s is asked next", err, g.Serving("")[0].Name)
		}
		if _, ok := errors.AsType[*panics.Error](Gateways{bomb}.Send(t.Context(), Message{})); !ok {
			t.Error("the panic of the only gateway is lost")
		}
	})
}

func TestAnErrorNeedsNoCause(t *testing.T) {
	for _, err := range []error{&LaterError{Wait: time.Minute}, &FinalError{}} {
		if err.Error() == "" {
			t.Errorf("%T says nothing", err)
		}
	}
}

// If all ask for time, the one that asks for less counts.
func TestTheSoonestGatewaySaysHowLongToWait(t *testing.T) {
	asks := func(wait time.Duration) *Gateway {
		return &Gateway{Sender: senderFunc(func(context.Context, Message) error { return &LaterError{Err: errors.New("full"), Wait: wait} })}
	}
	for _, waits := range [][2]time.Duration{{time.Second, time.Hour}, {time.Hour, time.Second}} {
		err := Gateways{asks(waits[0]), asks(waits[1])}.Send(t.Context(), Message{})
		if later, ok := errors.AsType[*LaterError](err); !ok || later.Wait != time.Second {
			t.Errorf("%v: %v", waits, err)
		}
	}
}

func TestAPhoneHasTheGatewaysOfItsCountry(t *testing.T) {
	g := Gateways{{Name: "baltic", Countries: []string{"+370", "+371"}}, {Name: "dutch", Countries: []string{"+31"}}, {Name: "riga", Countries: []string{"+3716"}}}
	for phone, want := range map[string]string{"+37060000001": "baltic", "+37160000001": "baltic riga", "+31600000001": "dutch", "+4915112345678": ""} {
		var names []string
		for _, gateway := range g.Serving(phone) {
			names = append(names, gateway.Name)
		}
		if got := strings.Join(names, " "); got != want || Serves(g, phone) != (want != "") {
			t.Errorf("%s: %s", phone, got)
		}
	}
	if !Serves(Gateways{{}}, "+4915112345678") {
		t.Error("a gateway without countries serves all")
	}
}

// One gateway alone has a minute, if it does not give up before.
func TestAGatewayHasAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hangs := senderFunc(func(ctx context.Context, _ Message) error { <-ctx.Done(); return ctx.Err() })
		if err := (Gateways{{Sender: hangs}}).Send(t.Context(), Message{}); err == nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// All gateways together have 10 s. A client that gives up is no failure of a gateway.
func TestGatewaysHaveTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := senderFunc(func(ctx context.Context, _ Message) error { <-ctx.Done(); return ctx.Err() })
		g := Gateways{{Sender: hangs}, {Sender: hangs}}
		began := time.Now()
		if err := g.Send(t.Context(), Message{}); err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		time.Sleep(time.Minute)
		// One for which no time was left has not failed, and is asked first for the next message.
		var asked string
		slow := func(name string) *Gateway {
			return &Gateway{Name: name, Sender: senderFunc(func(ctx context.Context, _ Message) error {
				asked += name
				ctx, cancel := context.WithTimeout(ctx, 6*time.Second) // two of them need more than there is
				defer cancel()
				<-ctx.Done()
				return ctx.Err()
			})}
		}
		three := Gateways{slow("a"), slow("b"), {Name: "c", Sender: senderFunc(func(context.Context, Message) error { asked += "c"; return nil })}}
		if err := three.Send(t.Context(), Message{}); err == nil || asked != "ab" {
			t.Errorf("%v, asked %s", err, asked)
		}
		if err := three.Send(t.Context(), Message{}); err != nil || asked != "abc" {
			t.Errorf("%v, asked %s", err, asked)
		}
		first := slices.Clone(g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Send(ctx, Message{}); err == nil || !slices.Equal(g.Serving(""), first) {
			t.Errorf("after a client gave up: %v", err)
		}
	})
}
