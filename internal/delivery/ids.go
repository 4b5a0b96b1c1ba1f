package delivery

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"
)

// AccountID identifies a vendor's account. Its string form is a UUID.
type AccountID [16]byte

// FleetID identifies a courier fleet. Its string form is a UUID.
type FleetID [16]byte

// NewAccountID issues a random account identifier.
func NewAccountID() AccountID { return AccountID(uuid.New()) }

// NewFleetID issues a random fleet identifier.
func NewFleetID() FleetID { return FleetID(uuid.New()) }

// ParseAccountID reads the canonical UUID form, 36 characters.
func ParseAccountID(s string) (AccountID, error) { return parseUUID[AccountID](s) }

// ParseFleetID reads the canonical UUID form, 36 characters.
func ParseFleetID(s string) (FleetID, error) { return parseUUID[FleetID](s) }

// ParseChosenFleet is ParseFleetID but for the zero id, which names no fleet.
func ParseChosenFleet(s string) (FleetID, error) {
	id, err := ParseFleetID(s)
	if err == nil && id.IsZero() {
		err = errors.New("names no fleet")
	}
	return id, err
}

func (id AccountID) String() string { return uuid.UUID(id).String() }
func (id FleetID) String() string   { return uuid.UUID(id).String() }
func (id OrderID) String() string   { return uuid.UUID(id).String() }

// MarshalText is String, also in logs.
func (id AccountID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// MarshalText is String, also in logs.
func (id OrderID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText takes any UUID.
func (id *AccountID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// UnmarshalText takes any UUID.
func (id *OrderID) UnmarshalText(text []byte) error { return (*uuid.UUID)(id).UnmarshalText(text) }

// LogValue is the canonical form in logs.
func (id FleetID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// IsZero reports whether no account is named.
func (id AccountID) IsZero() bool { return id == AccountID{} }

// IsZero reports whether no fleet is named.
func (id FleetID) IsZero() bool { return id == FleetID{} }

// IsZero reports whether no order is named.
func (id OrderID) IsZero() bool { return id == OrderID{} }

// MaxPartitions is the most partitions an OrderID can name (10 bits).
const MaxPartitions = 1 << 10

// OrderDigestSize is the length in bytes of the digest that an OrderID carries.
const OrderDigestSize = 12

// Digest is that digest.
type Digest = [OrderDigestSize]byte

// OrderID is a UUID of version 8 that carries the account's partition, the day of creation (days
// since 1970-01-01 UTC) and 96 bits of SHA-256(account, externalOrderId). An update finds its order
// without a look-up, and one external id has one order.
//
//	byte  0-5   digest[0:6]
//	byte  6     0x80 | partition >> 6
//	byte  7     day >> 8
//	byte  8     0x80 | partition & 0x3f
//	byte  9     day & 0xff
//	byte 10-15  digest[6:12]
type OrderID [16]byte

// OrderDigest names an account's external order id, or idempotency key, in the ledger.
func OrderDigest(account AccountID, externalID string) Digest {
	var buf [16 + 256]byte
	sum := sha256.Sum256(append(append(buf[:0], account[:]...), externalID...))
	return Digest(sum[:])
}

// DayOf counts whole days since 1970-01-01 UTC, the day part of an OrderID.
func DayOf(t time.Time) uint16 { return uint16(t.Unix() / 86400) }

// MakeOrderID composes an identifier. partition must be below MaxPartitions.
func MakeOrderID(partition int, day uint16, digest Digest) OrderID {
	var id OrderID
	copy(id[0:6], digest[0:6])
	id[6] = 0x80 | byte(partition>>6)&0x0f
	id[7] = byte(day >> 8)
	id[8] = 0x80 | byte(partition)&0x3f
	id[9] = byte(day)
	copy(id[10:16], digest[6:12])

	return id
}

// Partition is the partition of the ledger that holds the order.
func (id OrderID) Partition() int { return int(id[6]&0x0f)<<6 | int(id[8]&0x3f) }

// Day is the day of creation, see DayOf.
func (id OrderID) Day() uint16 { return uint16(id[7])<<8 | uint16(id[9]) }

// Digest is the part that the ledger uses as a key.
func (id OrderID) Digest() (d Digest) {
	copy(d[0:6], id[0:6])
	copy(d[6:12], id[10:16])
	return d
}

// AppendText appends the canonical UUID form to dst.
func (id OrderID) AppendText(dst []byte) []byte { return appendUUID(dst, id) }

// ParseOrderID reads the canonical form; an error is answered like an unknown order.
func ParseOrderID(s string) (OrderID, error) {
	id, err := parseUUID[OrderID](s)
	if err == nil && (id[6]&0xf0 != 0x80 || id[8]&0xc0 != 0x80) {
		return OrderID{}, fmt.Errorf("order id %q is not a UUID of version 8", s)
	}
	return id, err
}

// EventID names one version of one order for ever; receivers deduplicate on it.
func EventID(id OrderID, version uint64) string {
	var raw [24]byte
	copy(raw[:], id[:])
	binary.BigEndian.PutUint64(raw[16:], version)
	return "evt_" + hex.EncodeToString(raw[:])
}

// ParseEventID is the inverse of EventID.
func ParseEventID(s string) (OrderID, uint64, error) {
	if len(s) != 4+48 || s[:4] != "evt_" {
		return OrderID{}, 0, fmt.Errorf("event id %q does not name an order's event", s)
	}

	var raw [24]byte
	if _, err := hex.Decode(raw[:], []byte(s[4:])); err != nil {
		return OrderID{}, 0, fmt.Errorf("event id %q: %w", s, err)
	}
	return OrderID(raw[:16]), binary.BigEndian.Uint64(raw[16:]), nil
}

func parseUUID[ID ~[16]byte](s string) (ID, error) {
	if len(s) != 36 {
		return ID{}, fmt.Errorf("%d characters are no UUID of 36", len(s))
	}
	id, err := uuid.Parse(s)
	return ID(id), err
}

func appendUUID(dst []byte, id [16]byte) []byte {
	dst = append(hex.AppendEncode(dst, id[0:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:16])
}

// ClientID is the clientId of the account's credentials: "ven_" and the id in hex.
func (id AccountID) ClientID() string { return "ven_" + hex.EncodeToString(id[:]) }

// ClientID is the clientId of the fleet's credentials: "flt_" and the id in hex.
func (id FleetID) ClientID() string { return "flt_" + hex.EncodeToString(id[:]) }

// AccountOfClient is the inverse of AccountID.ClientID.
func AccountOfClient(clientID string) (AccountID, bool) {
	return parseClientID[AccountID]("ven_", clientID)
}

// FleetOfClient is the inverse of FleetID.ClientID.
func FleetOfClient(clientID string) (FleetID, bool) { return parseClientID[FleetID]("flt_", clientID) }

func parseClientID[ID ~[16]byte](prefix, clientID string) (ID, bool) {
	var raw [16]byte
	digits, ok := strings.CutPrefix(clientID, prefix)
	if !ok || len(digits) != 2*len(raw) {
		return ID{}, false
	}
	_, err := hex.Decode(raw[:], []byte(digits))
	return ID(raw), err == nil
}
