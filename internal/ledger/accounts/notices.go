package accounts

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Notice is an event that is not an order's.
type Notice struct {
	Account    delivery.AccountID
	Type       delivery.EventType
	OccurredAt time.Time
	Data       []byte // the JSON object of the envelope's data
	Day        string // makes the same notice of that day one event; empty: each is new
}

// StoreNotice is an event about a store.
func StoreNotice(s *delivery.Store, event delivery.EventType, at time.Time, data []byte) Notice {
	return Notice{Account: s.Account, Type: event, OccurredAt: at, Data: data}
}

// NoticeLifetime covers the webhook's 24 hours and a replay of them.
const NoticeLifetime = 72 * time.Hour

// Id is the event id of a notice: of its content when it has a day.
func (n *Notice) ID() string {
	if n.Day == "" {
		return NewNoticeID()
	}
	content := slices.Concat(n.Account[:], []byte(string(n.Type)+n.Day), n.Data)
	return "evt_" + uuid.NewSHA1(uuid.Nil, content).String()
}

func NewNoticeID() string { return "evt_" + uuid.NewString() }

func codeNotice(c *core.Codec, n *Notice) {
	c.All(n.Account[:], (*string)(&n.Type), &n.OccurredAt)
	if c.Writing {
		c.Out = append(c.Out, n.Data...)
	} else {
		n.Data = []byte(c.Rest)
	}
}

func EncodeNotice(n *Notice) []byte { return core.Encode(func(c *core.Codec) { codeNotice(c, n) }) }

func DecodeNotice(record string) (*Notice, error) {
	n := new(Notice)
	return n, core.Decode("notice", record, func(c *core.Codec) { codeNotice(c, n) })
}
