package ledger

import (
	"fmt"
	"sync"
	"time"

	"vendorapi/internal/delivery"
)

// Receiver is where an account's events go, and what signs them. It is never
// changed; a change makes another Version.
type Receiver struct {
	URL    string
	Secret string
	// Earlier secrets sign besides it, each until its time. Until Proven the spec's
	// header is keyed with the first of them that still does.
	Earlier []EarlierSecret
	Proven  bool  // a test event signed with Secret was accepted
	Version int64 // raised by every change of URL, secret or Proven
}

// Secrets are the secrets that sign at a time, the newest first: several within
// 24 h of a rotation.
func (r *Receiver) Secrets(now time.Time) []string {
	secrets := []string{r.Secret}
	for _, one := range valid(r.Earlier, now) {
		secrets = append(secrets, one.Secret)
	}
	return secrets
}

// receiversKept bounds what a process remembers; beyond it all are read again.
const receiversKept = 16_384

// receivers remembers what was last read of each account's receiver. Scripts
// tell the version with every lease, so what is stale is never used.
type receivers struct {
	mu   sync.Mutex
	last map[delivery.AccountID]*Receiver
}

// known is the receiver if it is of that version; nil otherwise.
func (c *receivers) known(account delivery.AccountID, version string) *Receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.last[account]
	if r == nil || r.Version != number(version) {
		return nil
	}
	return r
}

// learn keeps what an endpoint's hash says. What cannot be read is forgotten.
func (c *receivers) learn(l *core, account delivery.AccountID, values map[string]string) (*Receiver, error) {
	r, err := l.decodeReceiver(account, values)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || len(c.last) >= receiversKept {
		c.last = make(map[delivery.AccountID]*Receiver)
	}
	delete(c.last, account)
	if err == nil {
		c.last[account] = r
	}
	return r, err
}

func (l *core) decodeReceiver(account delivery.AccountID, values map[string]string) (*Receiver, error) {
	r := &Receiver{URL: values["url"], Proven: values["proven"] == "1", Version: number(values["version"])}
	if r.URL == "" {
		return r, nil
	}
	var err error
	if r.Secret, err = l.secrets.open(account[:], values["secret"]); err != nil {
		return nil, fmt.Errorf("webhook of account %s: %w", account, err)
	}
	if r.Earlier, err = l.earlierSecrets(values); err != nil {
		return nil, fmt.Errorf("webhook of account %s: %w", account, err)
	}
	for i, one := range r.Earlier {
		if r.Earlier[i].Secret, err = l.secrets.open(account[:], one.Secret); err != nil {
			return nil, fmt.Errorf("webhook of account %s: %w", account, err)
		}
	}
	return r, nil
}

// earlierSecrets are the sealed ones that still sign.
func (l *core) earlierSecrets(values map[string]string) ([]EarlierSecret, error) {
	all, err := storedEarlier(values)
	return valid(all, l.now()), err
}

// shownReceiver is a receiver for operators. Of a ledger without keys, and where a
// secret cannot be opened, its secrets are empty; until when earlier ones sign is
// told all the same. Nothing may be sent to it: leases carry their own.
func (l *core) shownReceiver(account delivery.AccountID, values map[string]string) *Receiver {
	if len(l.secrets.Keys) > 0 {
		r, err := l.decodeReceiver(account, values)
		if err == nil {
			return r
		}
		l.log.Error("webhook secret cannot be opened", "account", account, "error", err)
	}
	r := &Receiver{URL: values["url"], Proven: values["proven"] == "1", Version: number(values["version"])}
	r.Earlier, _ = l.earlierSecrets(values) // what cannot be read is not shown
	for i := range r.Earlier {
		r.Earlier[i].Secret = ""
	}
	return r
}
