// Package audit notes who did what, for operators.
package audit

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Entry says who did what. It holds ids, no secret, and nothing of a recipient.
//
// It is appended before what it is about is done: a crash in between leaves an entry without
// an effect, never an effect without an entry. What then came of it is another entry of the
// same ID with a higher Version, which takes the place of the first where it is exported.
type Entry struct {
	At        time.Time // in milliseconds; the same in all versions
	ID        string
	Version   int
	RequestID string
	Action    string
	Outcome   string // the error code if it was refused or failed; empty: it was done, as far as is known

	// Who did it.
	Actor      string // a user, the name of a key, a client's id
	Credential string // the kind of secret that proved who the actor is, such as "admin key"
	Address    string // the actor's network address

	// The object of the action; zero where it is of another kind. Account is also set for an order
	// and a store.
	Account delivery.AccountID
	Fleet   delivery.FleetID
	Order   delivery.OrderID
	Store   string // the vendor's id of it

	// What was changed, as JSON.
	Old string
	New string
}

// NewID is an ID of its own.
func NewID() string { return rand.Text() }

func codeAudit(c *core.Codec, e *Entry) {
	c.All(&e.At, &e.ID, &e.Version, &e.Actor, &e.Credential, &e.Address, &e.RequestID, &e.Action,
		e.Account[:], e.Fleet[:], e.Order[:], &e.Store, &e.Old, &e.New, &e.Outcome)
}

func Decode(record string) (*Entry, error) {
	e := new(Entry)
	return e, core.Decode("audit entry", record, func(c *core.Codec) { codeAudit(c, e) })
}

// Trail notes who did what.
type Trail struct {
	core *core.Client

	notedMu sync.Mutex
	noted   map[string]time.Time // when AppendUnless noted what
}

// New returns the calls of the audit trail.
func New(c *core.Client) *Trail { return &Trail{core: c} }

// Append returns when the entry is stored. It lies in the account's partition: a replica that has
// the effect, which is written later, has the entry, too (in a cluster not of a fleet). A
// repetition after an error is the same entry.
func (l *Trail) Append(ctx context.Context, e *Entry) error {
	r := l.core.Partitions[0]
	if !e.Account.IsZero() {
		r = l.core.PartitionOf(e.Account)
	}
	values := []any{"w", core.Encode(func(c *core.Codec) { codeAudit(c, e) })}
	return core.Failed("writing the audit stream", l.core.Redis.XAdd(ctx, &redis.XAddArgs{Stream: r.Key(core.KindAudit), Values: values}).Err())
}

// AppendUnless is Append, but for what this process has noted within a time: the same action
// of the same actor from the same address about the same. It remembers 4096 of them.
func (l *Trail) AppendUnless(ctx context.Context, e *Entry, within time.Duration) error {
	key := fmt.Sprintln(e.Action, e.Actor, e.Address, e.Account, e.Fleet, e.Order)
	l.notedMu.Lock()
	last, known := l.noted[key]
	l.notedMu.Unlock()
	if known && e.At.Sub(last).Abs() < within {
		return nil
	}
	if err := l.Append(ctx, e); err != nil {
		return err
	}

	l.notedMu.Lock()
	defer l.notedMu.Unlock()
	core.Remember(&l.noted, 4096, key, e.At)

	return nil
}
