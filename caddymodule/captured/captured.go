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

// An inbox has what a company's gateways have captured.
type inbox struct {
	last     int64     // the number of the last message, even if it is forgotten
	messages []Message // the oldest first
}

var (
	mu       sync.Mutex
	kept     = map[string]inbox{}     // by company
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

// Keep keeps a message. Keep, List and Forget may be called concurrently.
func Keep(m message.Message) {
	mu.Lock()
	defer mu.Unlock()
	of := kept[m.Company]
	of.last = max(of.last, first) + 1
	of.messages = append(of.messages, Message{of.last, time.Now(), m})
	of.messages = of.messages[max(0, len(of.messages)-atMost):]
	kept[m.Company] = of
	close(captured)
	captured = make(chan struct{})
}

// List returns the messages of a company whose number is above after, the oldest first, to
// one phone or address, or to all if to is empty. If there are none, List waits for the
// first one until ctx ends, and then returns nil.
func List(ctx context.Context, company, to string, after int64) []Message {
	for {
		mu.Lock()
		found, next := slices.Clone(kept[company].messages), captured
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

// Forget removes the messages of a company to an account that is deleted or, if mnemocode is
// empty, all of them.
func Forget(company, mnemocode string) {
	mu.Lock()
	defer mu.Unlock()
	of, last := kept[company], map[string]int64{}
	for _, m := range of.messages {
		if m.Mnemocode == mnemocode {
			last[m.To] = m.Number
		}
	}
	of.messages = slices.DeleteFunc(of.messages, func(m Message) bool {
		// An earlier message to the same phone or email may have another mnemocode, if that has
		// changed, or none, if there was no account yet.
		return mnemocode == "" || m.Mnemocode == mnemocode || m.Number < last[m.To]
	})
	kept[company] = of
}
