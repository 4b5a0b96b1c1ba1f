// Package journal is the form of the books' log: which entries there are, in which order, and
// which of the rows that were found belong to it.
//
// An entry is a text, the JSON of a decision, which names the SHA-256 of the entry before it and is
// signed with a key that is in no database. Whoever can write to a database can therefore remove
// entries, but neither add one nor change one; and whoever keeps the last entry can prove all
// before it. What a decision says is package closing's business.
package journal

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Entry is a row of the log. Its Text is what was decided; everything else proves it.
type Entry struct {
	// Text is JSON with at least the members of link. It is never written again from its parsed
	// form, because the seal and the signature are of its bytes.
	Text string `json:"text"`

	// KeyID names the key of the signature.
	KeyID string `json:"key"`

	// Signature is the HMAC-SHA-256 of Text, in hexadecimal.
	Signature string `json:"signature"`
}

// MaxText is how long the text of an entry may be, in bytes. The longest are corrections, of at most 500
// orders with at most 400 bytes each, and disputes, which name at most MaxNamed rows with at most 2,500
// bytes each; this is twice as much. Sign refuses a longer text, so a row that has one is not of the log,
// and need not be read.
const MaxText = 512 << 10

// link is what the journal reads of an entry's text.
type link struct {
	// Sequence counts the entries from 1 without a gap.
	Sequence int `json:"sequence"`

	// Previous is the seal of the entry before; empty in the first one.
	Previous string `json:"previous"`
}

// ParseHead reads an entry as it stands in Redis (Entry.Head); nil: text is empty. What is no entry
// becomes one without a signature.
func ParseHead(text string) *Entry {
	if text == "" {
		return nil
	}

	head := &Entry{}
	if err := json.Unmarshal([]byte(text), head); err != nil {
		return &Entry{Text: text}
	}
	return head
}

// Head returns the entry as it stands in Redis.
func (e *Entry) Head() string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // it has nothing but strings
	}
	return string(text)
}

// Seal returns the SHA-256 of the text, in hexadecimal.
func (e *Entry) Seal() string {
	sum := sha256.Sum256([]byte(e.Text))
	return hex.EncodeToString(sum[:])
}

// Digest returns the SHA-256 of the SHA-256 of the text, the key's name and the signature, in
// hexadecimal. Two rows with the same digest are the same row.
func (e *Entry) Digest() string {
	all := sha256.New()
	for _, part := range []string{e.Text, e.KeyID, e.Signature} {
		sum := sha256.Sum256([]byte(part))
		all.Write(sum[:])
	}
	return hex.EncodeToString(all.Sum(nil))
}

// Keys sign entries, and check their signatures. The zero Keys can do neither.
type Keys struct {
	current string
	keys    map[string][]byte // by id
}

// ErrNoKeys reports that entries can be neither signed nor checked.
var ErrNoKeys = errors.New("BOOKS_KEYS is not set, so the log of the books can be neither checked nor continued")

// NewKeys returns the keys of an environment, production or sandbox, which are derived from the
// keys of a ring: an entry of the other environment has no valid signature here, even if both
// have the same ring.
func NewKeys(environment, current string, ring map[string][]byte) Keys {
	k := Keys{current: current, keys: map[string][]byte{}}
	for id, key := range ring {
		k.keys[id] = authenticate(key, "books of "+environment)
	}
	return k
}

func authenticate(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// areSet reports whether there is a key to sign with.
func (k Keys) areSet() bool { return k.keys[k.current] != nil }

// Sign returns the entry of a text. The error is ErrNoKeys, or says that the text is longer than MaxText.
func (k Keys) Sign(text string) (Entry, error) {
	if !k.areSet() {
		return Entry{}, ErrNoKeys
	}
	if len(text) > MaxText {
		return Entry{}, fmt.Errorf("an entry of the books' log would have %d bytes, and may have %d", len(text), MaxText)
	}

	signature := authenticate(k.keys[k.current], text)
	return Entry{Text: text, KeyID: k.current, Signature: hex.EncodeToString(signature)}, nil
}

// Verify returns what is wrong with an entry by itself: its key, its signature, or its form.
func (k Keys) Verify(e *Entry) error {
	_, err := k.check(e)
	return err
}

// check is Verify, and returns the entry's link as well.
func (k Keys) check(e *Entry) (link, error) {
	key, known := k.keys[e.KeyID]
	if !known {
		return link{}, fmt.Errorf("it is signed with a key %.32q that is not in BOOKS_KEYS", e.KeyID)
	}

	// The text is compared, not what it decodes to: a signature has one spelling, so a row has no copies
	// that look different.
	signature := hex.EncodeToString(authenticate(key, e.Text))
	if !hmac.Equal([]byte(e.Signature), []byte(signature)) {
		return link{}, errors.New("its signature is wrong: it was not written by this service, or was changed")
	}

	var l link
	if err := json.Unmarshal([]byte(e.Text), &l); err != nil {
		return link{}, fmt.Errorf("it cannot be read: %w", err)
	}

	return l, nil
}
