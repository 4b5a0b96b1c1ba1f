package closing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
)

// Decision is what a person decides.
type Decision struct {
	Kind string // of the entry that it becomes
	By   string
	Note string

	// Month is held, released or closed; of another kind of decision it is zero.
	Month Month

	// Held is the seal of the hold that the person has seen, which is released or closed; NoHold: the
	// person saw none, so none is; empty: whichever there is.
	Held string

	// Orders of closed months are booked as they are known now, by a correction.
	Orders []delivery.OrderID
}

// NoHold is no seal.
const NoHold = "none"

// Outcome is what became of a decision.
type Outcome struct {
	// Entry is what the decision became; nil for a correction, which can become several entries, and
	// mostly after an error.
	Entry *Entry

	// Booked are the corrections that were booked, and Waiting the orders of closed months on which a person
	// has to decide.
	Booked  []Correction
	Waiting []Unexplained
}

// Decide carries a decision out. A hold and a closing call progress, with a text for people at each step.
// IsRefusal tells whether an error means that nothing was done.
func (b *Books) Decide(ctx context.Context, d Decision, progress func(string)) (Outcome, error) {
	if d.Kind == KindCorrection {
		return b.Book(ctx, d.By, d.Note, d.Orders)
	}

	var e *Entry
	var err error
	switch d.Kind {
	case KindHold:
		e, err = b.hold(ctx, d, progress)
	case KindRelease:
		e, err = b.release(ctx, d)
	case KindClose:
		e, err = b.close(ctx, d, progress)
	case KindDispute:
		e, err = b.dispute(ctx, d)
	case KindSetAside:
		e, err = b.setAside(ctx, d)
	default:
		err = fmt.Errorf("nobody can decide on a %q", d.Kind)
	}

	return Outcome{Entry: e}, err
}

// Person is who decides, for the audit trail.
type Person struct {
	Name       string
	Credential string // how the person was identified, such as "session"
	Address    string
	RequestID  string
}

// actions are the decisions in the audit trail.
var actions = map[string]string{
	KindHold:       "month held",
	KindRelease:    "month released",
	KindClose:      "month closed",
	KindCorrection: "corrections booked",
	KindDispute:    "rows of the books disputed",
	KindSetAside:   "rows of the books set aside",
}

// Refused is the outcome, in the audit trail, of what the state of the books did not allow.
const Refused = "REFUSED"

// audited carries a decision out. It is noted in the audit trail before, and once more if it is
// refused or fails.
func (b *Books) audited(ctx context.Context, who Person, d Decision, progress func(string)) (Outcome, error) {
	details, err := json.Marshal(struct {
		Month  Month              `json:"month,omitzero"`
		Note   string             `json:"note,omitempty"`
		Orders []delivery.OrderID `json:"orders,omitempty"`
	}{d.Month, d.Note, d.Orders})
	if err != nil {
		return Outcome{}, fmt.Errorf("an entry of the audit trail: %w", err)
	}

	entry := &audit.Entry{
		At: b.now().Truncate(time.Millisecond), ID: audit.NewID(), Version: 1,
		Actor: who.Name, Credential: who.Credential, Address: who.Address, RequestID: who.RequestID,
		Action: actions[d.Kind], New: string(details),
	}
	if err := b.ledger.Audit.Append(ctx, entry); err != nil {
		return Outcome{}, err
	}

	outcome, err := b.Decide(ctx, d, progress)
	if err == nil {
		return outcome, nil
	}

	entry.Version++
	entry.Outcome = outcomeOf(err)
	unaudited := b.ledger.Audit.Append(context.WithoutCancel(ctx), entry)
	if unaudited != nil {
		b.log.Error("what became of a decision is not in the audit trail", "action", entry.Action, "outcome", entry.Outcome, "error", unaudited)
	}

	return outcome, err
}

func outcomeOf(err error) string {
	switch {
	case IsRefusal(err):
		return Refused
	case errors.Is(err, delivery.ErrUnavailable):
		return string(delivery.CodeServiceUnavailable) // it may have been done
	}
	return string(delivery.CodeOf(err))
}
