package ledger

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
)

// SecretKeys are AES-256 keys by key id. New secrets are sealed with Current;
// the others open what was sealed before a rotation and are dropped once
// nothing is.
type SecretKeys struct {
	Current string
	Keys    map[string][]byte // 32 bytes each
}

// seal encrypts a webhook secret for one owner: key id, a colon, nonce and
// ciphertext (AES-256-GCM). The owner is authenticated with it, so a sealed
// secret copied to another account does not open.
func (k SecretKeys) seal(owner []byte, secret string) (string, error) {
	if strings.Contains(k.Current, ":") {
		return "", fmt.Errorf("key id %q must not contain a colon", k.Current)
	}
	aead, err := k.aead(k.Current)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails, crypto/rand ends the program instead
	return k.Current + ":" + string(aead.Seal(nonce, nonce, []byte(secret), owner)), nil
}

// open is the inverse of seal.
func (k SecretKeys) open(owner []byte, sealed string) (string, error) {
	kid, rest, ok := strings.Cut(sealed, ":")
	if !ok {
		return "", errors.New("the sealed secret names no key")
	}
	aead, err := k.aead(kid)
	if err != nil {
		return "", err
	}
	if len(rest) < aead.NonceSize() {
		return "", errors.New("the sealed secret is too short")
	}
	secret, err := aead.Open(nil, []byte(rest[:aead.NonceSize()]), []byte(rest[aead.NonceSize():]), owner)
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
	return cipher.NewGCM(block)
}
