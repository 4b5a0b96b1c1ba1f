package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// audit notes what a request is about to change, and from what to what, in ids and settings:
// never a secret, and nothing of a recipient. Only once it has succeeded may the change be made.
// Called again, because somebody else wrote in between, it replaces what it noted.
func (g *gateway) audit(x *requestContext, action string, before, after any) (err error) {
	if x.audited == nil {
		x.audited = x.newAuditEntry(action)
	}
	e := x.audited
	e.Version++
	if e.Old, e.New, err = changes(before, after); err != nil {
		return err
	}
	return x.ledger.Audit.Append(g.work, e)
}

// endAudit notes, and logs, what became of a change. An entry without that note is of one that
// was made, or whose gateway died meanwhile. Values are not logged: a receiver's address is its
// vendor's matter.
func (g *gateway) endAudit(x *requestContext, err error) {
	e := x.audited
	if err != nil {
		e.Version++
		if e.Outcome = string(delivery.CodeOf(err)); errors.Is(err, delivery.ErrUnavailable) {
			e.Outcome = string(delivery.CodeServiceUnavailable) // it may have been made
		}
		err = x.ledger.Audit.Append(g.work, e)
	}
	if x.route.access == adminOnly {
		var line []any
		if e.Actor != adminKeyVariable {
			line = append(line, "operator", e.Actor)
		}
		if line = append(x.subject(line...), "request_id", e.RequestID); e.Outcome != "" {
			line = append(line, "refused", e.Outcome)
		}
		g.Log.Info("admin: "+e.Action, line...)
	}
	if err != nil {
		g.Log.Error("what became of a change is not in the audit stream", "request_id", e.RequestID, "outcome", e.Outcome, "error", err)
	}
}

const (
	adminKeyVariable  = "ADMIN_KEY"
	adminKeysVariable = "ADMIN_KEYS"

	maxOperator = 64 // characters
)

var requestIDs = regexp.MustCompile(`^[0-9a-f]{16}$`)

// newAuditEntry says who asks. A named key speaks for its own name. Who has ADMIN_KEY, as the
// panel, may say for whom it acts, from where, and under which request id.
func (x *requestContext) newAuditEntry(action string) *ledger.AuditEntry {
	peer, _ := netip.AddrFromSlice(x.ctx.RemoteIP())
	e := &ledger.AuditEntry{At: x.now, ID: ledger.NewAuditID(), Action: action, Address: peer.Unmap().String(), RequestID: newRequestID(),
		Account: x.account, Fleet: x.fleet, Order: x.order, Store: x.store}
	switch {
	case x.route.access != adminOnly:
		e.Actor, e.Credential = x.account.ClientID(), "token"
	case x.keyName != "":
		e.Actor, e.Credential = x.keyName, "admin key"
	default:
		e.Actor, e.Credential = cmp.Or(x.operator(), adminKeyVariable), adminKeyVariable
		if value, sent := x.header("X-Operator-Address"); sent == 1 {
			if from, err := netip.ParseAddr(string(value)); err == nil && from.Zone() == "" {
				e.Address = from.Unmap().String()
			}
		}
		if value, sent := x.header(headerRequestID); sent == 1 && requestIDs.Match(value) {
			e.RequestID = string(value)
		}
	}
	return e
}

// operator is the header X-Operator, which the panel sends: printable characters only, so
// that no name looks like another line or field of the log. Anything else is nobody.
func (x *requestContext) operator() string {
	value, sent := x.header("X-Operator")
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if sent != 1 || !utf8.Valid(value) || utf8.RuneCount(value) > maxOperator || bytes.ContainsFunc(value, hidden) {
		return ""
	}
	return string(value)
}

// auditReplaced notes that a token is issued for a secret that was replaced and still works:
// once an hour for each client, address and gateway.
func (g *gateway) auditReplaced(x *requestContext, clientID string) error {
	e := x.newAuditEntry("token issued for a replaced secret")
	e.Version, e.Actor, e.Credential = 1, clientID, "replaced secret"
	return x.ledger.Audit.AppendUnless(g.work, e, time.Hour)
}

// changes are the members of two objects that differ, as JSON; empty for none.
func changes(before, after any) (removed, added string, err error) {
	members := func(of any) (object map[string]any, err error) {
		text, err := json.Marshal(of)
		if err == nil {
			err = json.Unmarshal(text, &object)
		}
		return object, err
	}
	was, err := members(before)
	is, other := members(after)
	if err = cmp.Or(err, other); err != nil {
		return "", "", fmt.Errorf("audit: %w", err)
	}
	dropEqual(was, is)
	for object, text := range map[*map[string]any]*string{&was: &removed, &is: &added} {
		if len(*object) > 0 {
			encoded, _ := json.Marshal(*object) // it was read from JSON
			*text = string(encoded)
		}
	}
	return removed, added, nil
}

func dropEqual(was, is map[string]any) {
	for name, old := range was {
		if reflect.DeepEqual(old, is[name]) {
			delete(was, name)
			delete(is, name)
			continue
		}
		inOld, isObject := old.(map[string]any)
		inNew, both := is[name].(map[string]any)
		if isObject && both {
			dropEqual(inOld, inNew)
		}
	}
}

// auditFleet is a copy of a fleet with the digest of its area, which may be long.
func auditFleet(f *delivery.Fleet) fleetView {
	copied := *f
	v := viewFleet(&copied, true)
	v.Coverage = fmt.Appendf(nil, `"%d bytes, SHA-256 %x"`, len(v.Coverage), sha256.Sum256(v.Coverage))
	return v
}

// auditURL is a receiver's URL without query and credentials, which may be secrets.
func auditURL(text string) map[string]string {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	u.User = nil
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return map[string]string{"url": u.String()}
}

// auditedURL is that of the registered URL; nil for none.
func (g *gateway) auditedURL(x *requestContext) (map[string]string, error) {
	endpoint, err := x.ledger.Webhooks.Endpoint(g.work, x.account)
	switch {
	case delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return auditURL(endpoint.URL), nil
}

// operatorKey opens the admin API.
type operatorKey struct {
	name   string // whose it is; empty: ADMIN_KEY
	digest [sha256.Size]byte
}

var adminKeyLine = regexp.MustCompile(`^([a-z0-9][a-z0-9._@+-]{0,63}):sha256:([0-9a-f]{64})$`)

// readAdminKeys reads the lines of ADMIN_KEYS, which may be absent. Errors show nothing of a line
// but its number: somebody may have put the key itself there.
func readAdminKeys() (keys []operatorKey, err error) {
	if os.Getenv(adminKeysVariable) == "" && os.Getenv(adminKeysVariable+"_FILE") == "" {
		return nil, nil
	}
	text, err := config.Secret(adminKeysVariable)
	if err != nil {
		return nil, err
	}
	number, seen := 0, map[string]bool{}
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := adminKeyLine.FindStringSubmatch(line)
		switch {
		case parts == nil:
			return nil, fmt.Errorf("%s: line %d: want name:sha256:<64 hexadecimal digits>, as `reporting admin-key` prints it", adminKeysVariable, number)
		case seen[parts[1]] || seen[parts[2]]:
			return nil, fmt.Errorf("%s: line %d: an earlier line has the same name or the same key", adminKeysVariable, number)
		}
		key := operatorKey{name: parts[1]}
		seen[parts[1]], seen[parts[2]] = true, true
		_, _ = hex.Decode(key.digest[:], []byte(parts[2])) // so many digits
		keys = append(keys, key)
	}
	return keys, nil
}

// failedKeysKept bounds the addresses that are counted apart in what has not been noted yet.
const failedKeysKept = 64

// failedKeys counts requests with a wrong admin key by address and minute, so that many of them
// make few entries. A crash loses what the last minute brought.
type failedKeys struct {
	counter prometheus.Counter
	process string // in the entries' IDs: a repetition after an error is the same entry

	mu     sync.Mutex
	counts map[failedKey]int
}

type failedKey struct {
	minute int64  // Unix seconds
	origin string // an address, or the /64 of one
}

func (f *failedKeys) count(now time.Time, origin string) {
	f.counter.Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	key := failedKey{now.Truncate(time.Minute).Unix(), strings.TrimSuffix(origin, "/32")}
	if _, known := f.counts[key]; !known && len(f.counts) >= failedKeysKept {
		key.origin = "other addresses"
	}
	f.counts[key]++
}

// flush notes the minutes before a time. What cannot be noted is kept.
func (f *failedKeys) flush(ctx context.Context, l *ledger.Ledger, before time.Time) (failed error) {
	f.mu.Lock()
	over := map[failedKey]int{}
	for key, n := range f.counts {
		if key.minute < before.Unix() {
			over[key] = n
		}
	}
	f.mu.Unlock()
	for key, n := range over {
		err := l.Audit.Append(ctx, &ledger.AuditEntry{At: time.Unix(key.minute, 0), ID: fmt.Sprint(f.process, key.origin, key.minute), Version: 1,
			Action: "admin key refused", Address: key.origin, New: fmt.Sprintf(`{"count":%d}`, n)})
		if err != nil {
			failed = errors.Join(failed, err)
			break // each would wait for the same
		}
		f.mu.Lock()
		delete(f.counts, key)
		f.mu.Unlock()
	}
	return failed
}
