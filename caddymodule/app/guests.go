package app

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
)

// A Guest is a plugin with the directive that configures it.
type Guest struct {
	Directive string
	Module    any // nil if there is none
}

// Guests lists the company's plugins.
func (c *Company) Guests() []Guest {
	e := &c.effective
	guests := []Guest{{"captcha", e.Captcha}}
	for _, channel := range []Guest{{"sms", e.SMS}, {"mail", e.Mail}} {
		gateways, _ := channel.Module.(message.Gateways)
		for i, g := range gateways {
			guests = append(guests, Guest{guest.Nth(channel.Directive, i), g.Sender})
		}
	}
	guests = append(guests, Guest{"events", e.Events.Receiver}, Guest{"password migrate", e.Migrate}, Guest{"password breached", e.Breached.List})
	for _, id := range slices.Sorted(maps.Keys(e.OAuth)) {
		guests = append(guests, Guest{fmt.Sprintf("oauth %d", id), e.OAuth[id].Provider})
	}
	return guests
}

func weakGuests(guests []Guest) (found []Weakness) {
	for _, g := range guests {
		if weak, ok := g.Module.(guest.Weak); ok {
			found = append(found, under(g.Directive, weak.Weaknesses())...)
		}
	}
	return found
}

// under adds the directive to each weakness.
func under(directive string, weak []guest.Weakness) (found []Weakness) {
	for _, w := range weak {
		found = append(found, Weakness{Directive: directive, Weakness: w})
	}
	return found
}
