package background

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// outboxBody is what a receiver gets.
type outboxBody struct {
	// What happened.
	Type string `json:"type"`
	// When it happened.
	Timestamp time.Time `json:"timestamp"`
	// The account, and what is known of the event.
	Data outboxData `json:"data"`
}

// outboxData is the data of an outbox event, with the names of the accounts API.
type outboxData struct {
	// The company's code.
	Company string `json:"company_code"`
	// The account's profile_mnemocode after the event; empty in a test.
	Mnemocode string `json:"profile_mnemocode"`
	// What it was before, if it changed.
	Previous string `json:"previous_mnemocode,omitempty"`
	// The fields that changed or were proven, with their names in the accounts API, or control_answer or
	// backup_codes.
	Fields []string `json:"fields,omitempty"`
	// The disclaimers that were accepted.
	Accepted []acceptance `json:"accepted,omitempty"`
	// Which lock it is.
	Reason string `json:"reason,omitempty"`
	// When the lock ends; absent if it lasts until someone removes it.
	Until *time.Time `json:"locked_until,omitempty"`
	// Which of the company's OAuth providers.
	Provider int `json:"provider_id,omitempty"`
}

type acceptance struct {
	// The disclaimer's code.
	Code string `json:"code"`
	// The disclaimer's version; it may be empty.
	Version string `json:"version"`
}

// OutboxEvents returns the outbox events for an event. It returns none, at no cost, if
// the company has no receiver. If only the outbox uses an event, the event's name is the
// type of the outbox event.
func OutboxEvents(ctx context.Context, company *tenant.Company, e record.Event) (all []record.OutboxEvent) {
	if company.Events.Receiver == nil {
		return nil
	}
	add := func(kind string, data outboxData) {
		if company.Events.Wants(kind) {
			data.Company, data.Mnemocode = company.Code, e.Mnemocode
			event := outboxEvent(kind, e.Time, data)
			if company.Events.Traceparent != nil {
				event.Traceparent = company.Events.Traceparent(ctx)
			}
			all = append(all, event)
		}
	}
	switch e.Name {
	case record.AccountCreated, record.AccountDeleted, record.AccountUnlocked:
		add(strings.TrimPrefix(e.Name, record.EventPrefix), outboxData{})
	case record.AccountChanged:
		others := slices.DeleteFunc(slices.Clone(e.Fields), func(f string) bool { return f == "password" })
		if len(others) > 0 {
			add(record.TypeAccountChanged, outboxData{Previous: e.Previous, Fields: others})
		}
		if len(others) < len(e.Fields) {
			add(record.TypePasswordChanged, outboxData{})
		}
	case record.AccountBackupCodes:
		add(record.TypeAccountChanged, outboxData{Fields: []string{"backup_codes"}})
	case record.AccountPasskeyAdded, record.AccountPasskeyRemoved:
		add(record.TypeAccountChanged, outboxData{Fields: []string{"passkeys"}})
	case record.LockPassword, record.LockDisabled, record.LockCodes, record.LockAnswers:
		data := outboxData{Reason: strings.TrimPrefix(e.Name, record.EventPrefix)}
		if e.Name != record.LockDisabled {
			data.Until = new(e.Until.UTC())
		}
		add(record.TypeAccountLocked, data)
	case record.IdentityBound:
		add(record.TypeIdentityBound, outboxData{Provider: e.Provider})
	case record.ContactVerified:
		add(record.TypeContactVerified, outboxData{Fields: e.Fields})
	case record.WelcomeUsed:
		add(record.TypeWelcomeUsed, outboxData{})
	case record.TypePasswordChanged:
		add(record.TypePasswordChanged, outboxData{})
	case record.TypeRecoveryCompleted:
		add(record.TypePasswordChanged, outboxData{})
		add(record.TypeRecoveryCompleted, outboxData{})
	case record.TypeDisclaimersAccepted:
		var data outboxData
		for _, a := range e.Accepted {
			data.Accepted = append(data.Accepted, acceptance{a.Code, a.Version})
		}
		add(record.TypeDisclaimersAccepted, data)
	}
	return all
}

// TrialEvent returns an event of no account, for testing a company's receiver.
func TrialEvent(company *tenant.Company, now time.Time) record.OutboxEvent {
	return outboxEvent(message.Trial, now, outboxData{Company: company.Code})
}

// mnemocodeOf returns the mnemocode of the event's account. The name of its queue may be
// a former one.
func mnemocodeOf(e record.OutboxEvent) string {
	var body outboxBody
	_ = json.Unmarshal(e.Body, &body) // outboxEvent has written it
	return body.Data.Mnemocode
}

func outboxEvent(kind string, at time.Time, data outboxData) record.OutboxEvent {
	at = at.UTC().Truncate(time.Microsecond)
	body, err := json.Marshal(outboxBody{kind, at, data})
	if err != nil {
		panic(err) // cannot happen: strings and times can always be marshalled
	}
	return record.OutboxEvent{ID: tokens.NewID(), Type: kind, At: at, Body: body, Queue: cmp.Or(data.Previous, data.Mnemocode)}
}
