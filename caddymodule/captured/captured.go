// Package captured keeps the messages of sms capture and mail capture in memory, where tests
// read them (contract, section 26). They outlive a reload, and not the process.
package captured

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// atMost is how many messages of a company are kept, the newest.
const atMost = 1000

// A Message is one that was not sent.
type Message struct {
	Number int64 // grows for each company, also from one process to the next
	Time   time.Time
	message.Message
}

var (
	mu       sync.Mutex
	kept     = map[string][]Message{} // by company, the oldest first
	first    = time.Now().UnixMicro() // numbers are above it
	captured = make(chan struct{})    // closed when the next message comes
)

// A Sender is a gateway that captures what it is given.
type Sender interface {
	message.Sender
	Captures()
}

// Of reports whether a company's gateways capture messages.
func Of(sender message.Sender) bool {
	gateways, _ := sender.(message.Gateways)
	return slices.ContainsFunc(gateways, func(g *message.Gateway) bool { _, is := g.Sender.(Sender); return is })
}

// Keep keeps a message. Keep and List may be called concurrently.
func Keep(m message.Message) {
	mu.Lock()
	defer mu.Unlock()
	of, number := kept[m.Company], first
	if len(of) > 0 {
		number = of[len(of)-1].Number
	}
	of = append(of, Message{number + 1, time.Now(), m})
	kept[m.Company] = of[max(0, len(of)-atMost):]
	close(captured)
	captured = make(chan struct{})
}

// List returns the messages of a company whose number is above after, the oldest first, to
// one phone or address, or to all if to is empty. If there are none, List waits for the
// first one until ctx ends, and then returns nil.
func List(ctx context.Context, company, to string, after int64) []Message {
	for {
		mu.Lock()
		found, next := slices.Clone(kept[company]), captured
		mu.Unlock()
		found = slices.DeleteFunc(found, func(m Message) bool {
			return m.Number <= after || to != "" && typed.LoginID(m.To, "") != to
		})
		if len(found) > 0 {
			return found
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}
