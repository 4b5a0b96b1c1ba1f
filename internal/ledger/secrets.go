package ledger

import (
	"encoding/binary"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// mostEarlier is how many earlier secrets may work besides the newest, each until
// the time that was promised for it; lua/secrets.lua has the same bound.
const mostEarlier = 4

// EarlierSecret is a secret that was replaced and works until its time.
type EarlierSecret struct {
	Secret string // of a client secret its SHA-256; empty where it is not to be seen
	Until  time.Time
}

// storedEarlier are the earlier secrets of an account's or an endpoint's hash in
// their order, see lua/secrets.lua; those whose time is over may be among them.
func storedEarlier(values map[string]string) ([]EarlierSecret, error) {
	var all []EarlierSecret
	if values["old_secret"] != "" {
		all = append(all, EarlierSecret{values["old_secret"], timeOf(number(values["old_until"]))})
	}
	more, err := parseEarlier(values["previous"])
	return append(all, more...), err
}

func parseEarlier(packed string) (all []EarlierSecret, err error) {
	f := fields{rest: packed}
	for f.rest != "" {
		until := int64(f.uint16())<<32 | int64(f.uint32())
		all = append(all, EarlierSecret{f.take(int(f.uint16())), timeOf(until)})
	}
	if f.err != nil {
		return nil, fmt.Errorf("earlier secrets: %w", f.err)
	}
	return all, nil
}

func packEarlier(all []EarlierSecret) string {
	var b []byte
	for _, one := range all {
		ms := millis(one.Until)
		b = binary.BigEndian.AppendUint16(b, uint16(ms>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(ms))
		b = binary.BigEndian.AppendUint16(b, uint16(len(one.Secret)))
		b = append(b, one.Secret...)
	}
	return string(b)
}

// valid are those whose time is not over.
func valid(all []EarlierSecret, now time.Time) []EarlierSecret {
	var left []EarlierSecret
	for _, one := range all {
		if now.Before(one.Until) {
			left = append(left, one)
		}
	}
	return left
}

func tooManySecrets() error {
	return delivery.Refuse(delivery.CodeTooManySecrets,
		"%d earlier secrets still work, each for the 24 hours that were promised for it; wait until one has ended, or end them all with revokeOld", mostEarlier)
}
