package core

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// MostEarlier earlier secrets work besides the newest, as in secrets.lua.
const MostEarlier = 4

// EarlierSecret is a secret that was replaced and works until its time.
type EarlierSecret struct {
	Secret string // of a client secret its SHA-256; empty where it is not to be seen
	Until  time.Time
}

// The fields of an account's and of an endpoint's hash that hold its secrets.
const (
	SecretField  = "secret"
	EarlierField = "earlier" // packed, as secrets.lua describes
)

// ParseEarlier returns the secrets of the field earlier, also those whose time is over.
func ParseEarlier(packed string) (all []EarlierSecret, err error) {
	f := Fields{Rest: packed}
	for f.Rest != "" {
		until := int64(f.Uint16())<<32 | int64(f.Uint32())
		all = append(all, EarlierSecret{f.Take(int(f.Uint16())), TimeOf(until)})
	}

	if f.Err != nil {
		return nil, fmt.Errorf("earlier secrets: %w", f.Err)
	}
	return all, nil
}

// PackEarlier returns the field earlier that holds the given secrets: it reverses ParseEarlier.
func PackEarlier(all []EarlierSecret) string {
	var b []byte
	for _, secret := range all {
		ms := Millis(secret.Until)
		b = binary.BigEndian.AppendUint16(b, uint16(ms>>32))
		b = binary.BigEndian.AppendUint32(b, uint32(ms))
		b = binary.BigEndian.AppendUint16(b, uint16(len(secret.Secret)))
		b = append(b, secret.Secret...)
	}
	return string(b)
}

// ValidSecrets returns a copy of the secrets without those whose time is over at now.
func ValidSecrets(all []EarlierSecret, now time.Time) []EarlierSecret {
	return slices.DeleteFunc(slices.Clone(all), func(secret EarlierSecret) bool { return !now.Before(secret.Until) })
}

// KnowsSecret reports whether a client secret's SHA-256 is that of the current secret or of an earlier
// one that works at now. Each comparison takes constant time.
func KnowsSecret(current string, earlier []EarlierSecret, secretHash [32]byte, now time.Time) bool {
	right := subtle.ConstantTimeCompare([]byte(current), secretHash[:])
	for _, secret := range ValidSecrets(earlier, now) {
		right |= subtle.ConstantTimeCompare([]byte(secret.Secret), secretHash[:])
	}
	return right == 1
}

// TooManySecrets returns the refusal of a rotation while MostEarlier secrets still work.
func TooManySecrets() error {
	return delivery.Refuse(delivery.CodeTooManySecrets,
		"%d earlier secrets still work, each for the 24 hours that were promised for it; "+
			"wait until one has ended, or end them all with revokeOld", MostEarlier)
}

// SecretKeys are AES-256 keys by id. Current seals; the others open what is older.
type SecretKeys struct {
	Current string
	Keys    map[string][]byte // 32 bytes each
}

// Seal encrypts a secret for one owner: key id, a colon, nonce and ciphertext
// (AES-256-GCM). Copied to another account it does not open.
func (k SecretKeys) Seal(owner []byte, secret string) (string, error) {
	if strings.Contains(k.Current, ":") {
		return "", fmt.Errorf("key id %q must not contain a colon", k.Current)
	}

	aead, err := k.aead(k.Current)
	if err != nil {
		return "", err
	}
	return k.Current + ":" + string(aead.Seal(nil, nil, []byte(secret), owner)), nil
}

// Open decrypts what Seal has sealed for the same owner. It fails when the text names no key or one
// that is not in Keys, and when it was changed or sealed for another owner.
func (k SecretKeys) Open(owner []byte, sealed string) (string, error) {
	kid, rest, ok := strings.Cut(sealed, ":")
	if !ok {
		return "", errors.New("the sealed secret names no key")
	}

	aead, err := k.aead(kid)
	if err != nil {
		return "", err
	}

	if len(rest) < aead.Overhead() {
		return "", errors.New("the sealed secret is too short")
	}

	secret, err := aead.Open(nil, nil, []byte(rest), owner)
	if err != nil {
		return "", fmt.Errorf("opening a secret sealed with key %q: %w", kid, err)
	}

	return string(secret), nil
}

func (k SecretKeys) aead(kid string) (cipher.AEAD, error) {
	key, ok := k.Keys[kid]
	if !ok {
		return nil, fmt.Errorf("no key %q for webhook secrets is configured", kid)
	}

	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key %q for webhook secrets: %w", kid, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
