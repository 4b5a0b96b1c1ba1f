package partitions

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// severityShift leaves the lower bits of a receiver's score for the time of its state in ms,
// enough until the year 2109. A score stays below 2^53, so a double holds it.
const severityShift = 42

// worstSeverity is that of EndpointUnreachable.
const worstSeverity = 3

// receiverScore orders receivers by severity, the worst first, and then by how long the state
// has lasted. webhooks/write_endpoint.lua computes that of a healthy one.
func receiverScore(state EndpointState, since int64) int64 {
	return int64(worstSeverity-max(0, state.Severity()))<<severityShift + since
}

// ReceiverScores returns the range of a state; of every state for an empty one.
func ReceiverScores(state EndpointState) core.ScoreRange {
	if state == "" {
		return core.ScoreRange{First: 0, Last: 1<<53 - 1}
	}
	first := receiverScore(state, 0)
	return core.ScoreRange{First: first, Last: first + 1<<severityShift - 1}
}

// EndpointStates are all states, the worst first.
var EndpointStates = []EndpointState{EndpointUnreachable, EndpointGone, EndpointFailing, EndpointHealthy}

// EndpointState is a receiver's state for operators; it disables nothing.
type EndpointState string

// The states; a success makes it healthy.
const (
	EndpointHealthy     EndpointState = "healthy"
	EndpointFailing     EndpointState = "failing"     // the last attempt failed
	EndpointUnreachable EndpointState = "unreachable" // an event was given up after 24 hours
	EndpointGone        EndpointState = "gone"        // it answered 410
)

// Severity is 0 for healthy, 1 failing, 2 gone, 3 unreachable, -1 for others.
func (s EndpointState) Severity() int {
	return slices.Index([]EndpointState{EndpointHealthy, EndpointFailing, EndpointGone, EndpointUnreachable}, s)
}

// EndpointLimits are an endpoint's own settings, over all workers.
type EndpointLimits struct {
	InFlight  int `json:"maxInFlight"`  // sends in flight, 1 to 1024; 0: the worker's default
	PerSecond int `json:"maxPerSecond"` // events a second, 1 to 10,000; 0: no pace
}

// Receiver is where events go, and what signs them. Immutable, by Version.
type Receiver struct {
	URL    string
	Secret string
	// Earlier secrets sign besides it until their time. Until Proven the spec's
	// header uses the first of them that is valid.
	Earlier []core.EarlierSecret
	Proven  bool  // a test event signed with Secret was accepted
	Version int64 // raised by every change of URL, secret or Proven
}

// decodeReceiver opens the secrets that still sign; they are empty after an error.
func decodeReceiver(account delivery.AccountID, values map[string]string, keys core.SecretKeys, now time.Time) (*Receiver, error) {
	r := &Receiver{URL: values["url"], Proven: values["proven"] == "1", Version: core.ParseNumber(values["version"])}
	if r.URL == "" {
		return r, nil
	}

	earlier, err := core.ParseEarlier(values[core.EarlierField])
	secrets := append([]core.EarlierSecret{{Secret: values[core.SecretField]}}, core.ValidSecrets(earlier, now)...)
	for i := range secrets {
		sealed := secrets[i].Secret
		secrets[i].Secret = ""
		if err == nil {
			secrets[i].Secret, err = keys.Open(account[:], sealed)
		}
	}

	r.Secret = secrets[0].Secret
	if len(secrets) > 1 {
		r.Earlier = secrets[1:]
	}

	if err != nil {
		return r, fmt.Errorf("webhook of account %s: %w", account, err)
	}

	return r, nil
}

// Secrets are the secrets that sign at a time, newest first.
func (r *Receiver) Secrets(now time.Time) []string {
	secrets := []string{r.Secret}
	for _, one := range core.ValidSecrets(r.Earlier, now) {
		secrets = append(secrets, one.Secret)
	}
	return secrets
}

func TestData(account delivery.AccountID) []byte {
	return append(strconv.AppendQuote([]byte(`{"accountId":`), account.String()), '}')
}

// Key names an event in a schedule.
func (e *Event) Key() string {
	if e.Notice != "" {
		return NoticeKey(e.Notice)
	}
	return VersionKey(e.Order, e.Version, e.Kind)
}
