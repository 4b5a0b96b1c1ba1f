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
	"maps"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
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
	e.Old, e.New, err = changes(before, after)
	if err != nil {
		return err
	}
	return x.ledger.Audit.Append(g.work, e)
}

// endAudit notes a change that was refused or failed, and logs every one, without values. An entry
// without that note is of a change that was made, or whose gateway died meanwhile.
func (g *gateway) endAudit(x *requestContext, err error) {
	e := x.audited
	if err != nil {
		e.Version++
		e.Outcome = string(delivery.CodeOf(err))
		if errors.Is(err, delivery.ErrUnavailable) {
			e.Outcome = string(delivery.CodeServiceUnavailable) // it may have been made
		}
		err = x.ledger.Audit.Append(g.work, e)
	}

	if x.route.access == adminOnly {
		g.Log.Info("admin: "+e.Action, append(x.subject("operator", e.Actor), "request_id", e.RequestID, "refused", e.Outcome)...)
	}

	if err != nil {
		g.Log.Error("what became of a change is not in the audit stream", "request_id", e.RequestID, "outcome", e.Outcome, "error", err)
	}
}

const adminKeyVariable, adminKeysVariable = "ADMIN_KEY", "ADMIN_KEYS"

const maxOperator = 64 // characters

var requestIDs = regexp.MustCompile(`^[0-9a-f]{16}$`)

// newAuditEntry says who asks. A named key speaks for its own name. Who has ADMIN_KEY, as the
// panel, may say for whom it acts, from where, and under which request id.
func (x *requestContext) newAuditEntry(action string) *audit.Entry {
	peer, _ := netip.AddrFromSlice(x.ctx.RemoteIP())
	e := &audit.Entry{At: x.now, ID: audit.NewID(), Action: action, Address: peer.Unmap().String(), RequestID: newRequestID(),
		Account: x.account, Fleet: x.fleet, Order: x.order, Store: x.store}
	switch {
	case x.route.access != adminOnly && x.account.IsZero():
		e.Actor = x.fleet.ClientID()
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

// replacedNotedEvery is how often it is noted that a client still uses a replaced secret.
const replacedNotedEvery = time.Hour

// auditReplaced notes that a token is issued for a secret that was replaced and still works:
// once in replacedNotedEvery for each client, address and gateway.
func (g *gateway) auditReplaced(x *requestContext) error {
	e := x.newAuditEntry("token issued for a replaced secret")
	e.Version, e.Credential = 1, "replaced secret"
	return x.ledger.Audit.AppendUnless(g.work, e, replacedNotedEvery)
}

// changes are the members of two objects that differ, as JSON; empty for none.
func changes(before, after any) (removed, added string, err error) {
	var objects [2]map[string]any
	for i, of := range []any{before, after} {
		encoded, failed := json.Marshal(of)
		err = cmp.Or(err, failed, json.Unmarshal(encoded, &objects[i]))
	}

	dropEqual(objects[0], objects[1])
	for i, text := range []*string{&removed, &added} {
		if len(objects[i]) > 0 && err == nil {
			encoded, _ := json.Marshal(objects[i]) // it was read from JSON
			*text = string(encoded)
		}
	}

	return removed, added, err
}

func dropEqual(was, is map[string]any) {
	for name, old := range was {
		inOld, _ := old.(map[string]any)
		inNew, _ := is[name].(map[string]any)
		dropEqual(inOld, inNew)
		if reflect.DeepEqual(old, is[name]) {
			delete(was, name)
			delete(is, name)
		}
	}
}

// auditFleet is a copy of a fleet with the digest of its area, which may be long.
func auditFleet(f *delivery.Fleet) fleetView {
	v := viewFleet(new(*f), true)
	v.Coverage = fmt.Appendf(nil, `"%d bytes, SHA-256 %x"`, len(v.Coverage), sha256.Sum256(v.Coverage))
	return v
}

// auditURL notes a change of the account's webhook URL; empty: none.
func (g *gateway) auditURL(x *requestContext, action, after string) error {
	before, err := x.ledger.Webhooks.Endpoint(g.work, x.account)
	if delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured {
		return g.audit(x, action, nil, withoutSecrets(after))
	} else if err != nil {
		return err
	}
	return g.audit(x, action, withoutSecrets(before.URL), withoutSecrets(after))
}

// withoutSecrets is a receiver's URL for the audit trail, which is kept for years: where it leads, and
// the beginning of the URL's digest, by which two can be told apart. Credentials, path and query
// may all be secrets, as in https://hooks.example/T0/B0/XXXX. It is nil without a URL.
func withoutSecrets(address string) any {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return nil
	}

	shown := u.Scheme + "://" + u.Host
	hasMore := strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil
	if hasMore {
		shown += "/…"
	}

	digest := sha256.Sum256([]byte(address))

	return map[string]string{"url": shown, "sha256": hex.EncodeToString(digest[:4]) + "…"}
}

// operatorKey opens the admin API.
type operatorKey struct {
	name   string // whose it is; empty: ADMIN_KEY
	digest [sha256.Size]byte
}

var adminKeyLine = regexp.MustCompile(`^([a-z0-9][a-z0-9._@+-]{0,63}):sha256:([0-9a-f]{64})$`)

// readAdminKeys reads the lines of ADMIN_KEYS, which may be absent, or empty after the last key was
// taken back. Errors show nothing of a line
// but its number: somebody may have put the key itself there.
func readAdminKeys() (keys []operatorKey, err error) {
	text, err := config.Variable(adminKeysVariable)
	if err != nil && !errors.Is(err, config.ErrEmpty) {
		return nil, err
	}

	seen := map[string]bool{fmt.Sprintf("%x", sha256.Sum256(nil)): true} // the key that is nothing
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}

		parts := adminKeyLine.FindStringSubmatch(line)
		if parts == nil || seen[parts[1]] || seen[parts[2]] {
			return nil, fmt.Errorf("%s: line %d: want name:sha256:<64 hexadecimal digits>, as `reporting admin-key` prints it, each name and each key once", adminKeysVariable, i+1)
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
	process string // in the entries' IDs: a repetition after an error is the same entry
	mu      sync.Mutex
	counts  map[failedKey]int
}

type failedKey struct {
	minute int64  // Unix seconds
	origin string // an address, or the /64 of one
}

func (f *failedKeys) count(now time.Time, origin string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := failedKey{now.Truncate(time.Minute).Unix(), strings.TrimSuffix(origin, "/32")}
	if _, known := f.counts[key]; !known && len(f.counts) >= failedKeysKept {
		key.origin = "other addresses"
	}
	f.counts[key]++
}

// flush notes the minutes before a time. What cannot be noted is kept.
func (f *failedKeys) flush(ctx context.Context, l *ledger.Ledger, before time.Time) error {
	f.mu.Lock()
	counts := maps.Clone(f.counts)
	f.mu.Unlock()
	for key, n := range counts {
		if key.minute >= before.Unix() {
			continue
		}

		err := l.Audit.Append(ctx, &audit.Entry{At: time.Unix(key.minute, 0), ID: fmt.Sprint(f.process, key.origin, key.minute), Version: 1,
			Action: "admin key refused", Address: key.origin, Outcome: string(delivery.CodeTokenInvalid), New: fmt.Sprintf(`{"count":%d}`, n)})
		if err != nil {
			return err
		}

		f.mu.Lock()
		delete(f.counts, key)
		f.mu.Unlock()
	}

	return nil
}
