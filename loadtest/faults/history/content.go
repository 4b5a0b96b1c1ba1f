package history

import (
	"fmt"
	"strings"
)

// Content is what an order must hold of the request that made it. Its Digest is
// the Content of an Op.
type Content struct {
	Store, External   string
	Recipient, Phone  string // as stored: ten digits
	Dropoff, Note     string // dropoff.text, packageNote
	PaymentType       string // "" when none was given
	Amount, Collected int64  // kuruş; -1 when none was given
}

// Digest names the content; equal contents have equal digests.
func (c Content) Digest() string {
	var b strings.Builder
	for _, text := range []string{c.Store, c.External, c.Recipient, c.Phone, c.Dropoff, c.Note, c.PaymentType} {
		fmt.Fprintf(&b, "%q ", text)
	}
	fmt.Fprintf(&b, "%d %d", c.Amount, c.Collected)
	return Digest([]byte(b.String()))
}
