package closing

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Person is who decides, for the audit trail.
type Person struct {
	Name       string
	Credential string // what showed that
	Address    string
	RequestID  string
}

var actions = map[string]string{KindHold: "month held", KindRelease: "month released", KindClose: "month closed", KindCorrection: "corrections booked"}

// Refused is the outcome of what the state of a month did not allow.
const Refused = "REFUSED"

// Audited lets a person decide something of a month, or of orders of closed months. It is noted in the audit trail
// before it is done, and once more if it is refused or fails.
func (b *Books) Audited(ctx context.Context, who Person, kind string, m Month, note string, orders []delivery.OrderID, decide func() error) error {
	var ids []string
	for _, id := range orders {
		ids = append(ids, id.String())
	}
	values, err := json.Marshal(struct {
		Month  Month    `json:"month"`
		Note   string   `json:"note,omitempty"`
		Orders []string `json:"orders,omitempty"`
	}{m, note, ids})
	if err != nil {
		return err
	}
	e := &ledger.AuditEntry{At: b.now().Truncate(time.Millisecond), ID: ledger.NewAuditID(), Version: 1, Actor: who.Name, Credential: who.Credential,
		Address: who.Address, RequestID: who.RequestID, Action: actions[kind], New: string(values)}
	if err := b.ledger.Audit.Append(ctx, e); err != nil {
		return err
	}
	if err = decide(); err == nil {
		return nil
	}
	e.Version++
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, ErrChanged):
		e.Outcome = Refused
	case errors.Is(err, delivery.ErrUnavailable):
		e.Outcome = string(delivery.CodeServiceUnavailable) // it may have been done
	default:
		e.Outcome = string(delivery.CodeOf(err))
	}
	if failed := b.ledger.Audit.Append(context.WithoutCancel(ctx), e); failed != nil {
		b.log.Error("what became of a decision is not in the audit trail", "action", e.Action, "outcome", e.Outcome, "error", failed)
	}
	return err
}
