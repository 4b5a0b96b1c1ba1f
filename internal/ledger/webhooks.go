package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/webhook"
)

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

// secretOverlap is how long the previous secret still signs after a rotation.
const secretOverlap = 24 * time.Hour

// EndpointLimits are an endpoint's own settings, over all workers.
type EndpointLimits struct {
	InFlight  int `json:"maxInFlight"`  // sends in flight, 1 to 1024; 0: the worker's default
	PerSecond int `json:"maxPerSecond"` // events a second, 1 to 10,000; 0: no pace
}

// WebhookEndpoint is an account's receiver and the state of its queue. Its secrets
// are empty without Config.Secrets.
type WebhookEndpoint struct {
	Account delivery.AccountID
	Receiver
	Limits                 EndpointLimits
	State                  EndpointState
	StateSince             time.Time
	Backlog                int64     // events that wait or are being sent
	Unknown                bool      // no owner has written the partition's summary for summaryLifetime: more may wait
	NextAttempt            time.Time // when something may be sent next; zero: nothing waits
	BreakerOpen            bool      // after failures in a row, single probes go until one succeeds
	BreakerSince           time.Time
	Pace                   float64   // how many events a second go out while it recovers; 0: any number
	HeldUntil              time.Time // until when nothing is sent; zero or past: it is not held
	RecentOK, RecentFailed int64     // Attempts in this hour of the clock and the one before
	// Events by how their attempts ended, since the account exists.
	Delivered, Retried, Undelivered, NotSent int64
}

func webhookNotConfigured() error {
	return delivery.Refuse(delivery.CodeWebhookNotConfigured, "no webhook URL is registered; register one with PUT /webhook")
}

// decodeEndpoint is the endpoint with these facts; nil when it has no URL. first is the next to be due.
func (l *Webhooks) decodeEndpoint(account delivery.AccountID, f *Facts, scheduled int64, first []redis.Z, owned bool) *WebhookEndpoint {
	if f.URL == "" {
		return nil
	}

	now := l.Now()
	if f.Unreadable != nil && len(l.secrets.Keys) > 0 {
		l.log.Error("webhook secret cannot be opened", "account", account, "error", f.Unreadable)
	}

	t := &f.Tally
	e := &WebhookEndpoint{
		Account: account, Receiver: f.Receiver, Limits: f.Limits, State: f.State, StateSince: timeOf(f.StateSince),
		Backlog: scheduled + int64(f.Waiting), Unknown: !owned,
		HeldUntil: timeOf(f.Breaker.Hold), BreakerOpen: f.Breaker.Open, Pace: math.Round(f.Breaker.Rate*10) / 10,
		Delivered: int64(t.Delivered), Retried: int64(t.Retried), Undelivered: int64(t.Undelivered), NotSent: int64(t.NotSent),
	}

	e.RecentOK, e.RecentFailed = t.recent(now)
	if e.BreakerOpen {
		e.BreakerSince = timeOf(f.Breaker.Since)
	}

	if f.Waiting > 0 {
		e.NextAttempt = now
	} else if len(first) > 0 {
		e.NextAttempt = time.UnixMilli(int64(first[0].Score))
	}

	if e.BreakerOpen || !e.NextAttempt.IsZero() && e.HeldUntil.After(e.NextAttempt) {
		e.NextAttempt = e.HeldUntil // with an open breaker the next probe
	}

	return e
}

// Endpoint reads an account's endpoint. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) Endpoint(ctx context.Context, account delivery.AccountID) (*WebhookEndpoint, error) {
	found, err := l.readEndpoints(ctx, []delivery.AccountID{account})
	if err != nil {
		return nil, err
	}

	if len(found) == 0 {
		return nil, webhookNotConfigured()
	}
	return found[0], nil
}

// Owner is whose endpoint it is: an account, or finance with nothing but id and name. ACCOUNT_NOT_FOUND.
func (l *Webhooks) Owner(ctx context.Context, id delivery.AccountID) (*delivery.Account, error) {
	if id == delivery.FinanceAccount {
		return &delivery.Account{ID: id, Name: delivery.FinanceName}, nil
	}
	return l.accounts.Get(ctx, id)
}

// OwnerNames are the names of those whose endpoints these are, in their order and in one round
// trip; empty for an account that does not exist, with ErrIncomplete also for one whose partition does
// not answer.
func (l *Webhooks) OwnerNames(ctx context.Context, ids []delivery.AccountID) ([]string, error) {
	names, errs := pipelinedEach(ctx, l.rdb, "reading the names of accounts", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() string {
		if id == delivery.FinanceAccount {
			return func() string { return delivery.FinanceName }
		}
		read := pipe.HMGet(ctx, l.partitionOf(id).account(id), "name")
		return func() string { return text(read.Val()[0]) }
	})
	return names, partly(errs)
}

// readEndpoints reads the endpoints that there are. With ErrIncomplete those of partitions that do not
// answer are missing.
func (l *Webhooks) readEndpoints(ctx context.Context, ids []delivery.AccountID) ([]*WebhookEndpoint, error) {
	all, errs := pipelinedEach(ctx, l.rdb, "reading webhook endpoints", ids, func(pipe redis.Pipeliner, account delivery.AccountID) func() *WebhookEndpoint {
		r := l.partitionOf(account)
		values, scheduled := pipe.HGetAll(ctx, r.keyOf(kindEndpoint, account[:])), pipe.ZCard(ctx, r.keyOf(kindRetries, account[:]))
		first, owned := pipe.ZRangeWithScores(ctx, r.keyOf(kindRetries, account[:]), 0, 0), pipe.Exists(ctx, r.key(kindSummary))
		return func() *WebhookEndpoint {
			return l.decodeEndpoint(account, decodeFacts(account, values.Val(), l.secrets, l.Now()), scheduled.Val(), first.Val(), owned.Val() > 0)
		}
	})

	return present(all), partly(errs)
}

// writeEndpoint returns the script's reply. All modes but set need a URL: WEBHOOK_NOT_CONFIGURED.
// TOO_MANY_SECRETS of rotate, WEBHOOK_BEING_REMOVED of set.
func (l *Webhooks) writeEndpoint(ctx context.Context, account delivery.AccountID, mode string, args ...any) (string, error) {
	r := l.partitionOf(account)
	keys := []string{r.keyOf(kindEndpoint, account[:]), r.key(kindNotes), r.list(listReceivers)}
	return l.runWord(ctx, "write_endpoint",
		refusals{"missing": webhookNotConfigured(), "full": tooManySecrets(), "waiting": beingRemoved()},
		keys, append([]any{r.prefix, account[:], mode}, args...)...)
}

// SetURL registers or changes a URL, which takes the whole backlog; the same one is
// probed if its breaker is open. The first issues a secret, which is returned this once.
// WEBHOOK_BEING_REMOVED while a worker still records what waited for a URL that was deleted.
func (l *Webhooks) SetURL(ctx context.Context, account delivery.AccountID, url string) (e *WebhookEndpoint, issued string, err error) {
	secret := webhook.NewSecret()
	sealed, err := l.secrets.seal(account[:], secret)
	if err != nil {
		return nil, "", err
	}

	reply, err := l.writeEndpoint(ctx, account, "set", url, sealed)
	for range unsentLooks {
		if delivery.CodeOf(err) != delivery.CodeWebhookBeingRemoved {
			break
		}
		sleep(ctx, l.unsentPause)
		reply, err = l.writeEndpoint(ctx, account, "set", url, sealed)
	}

	if err != nil {
		return nil, "", err
	}

	if reply == "issued" {
		issued = secret
	}

	e, err = l.Endpoint(ctx, account)
	if delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured {
		e, err = &WebhookEndpoint{Account: account, State: EndpointHealthy, StateSince: l.Now()}, nil
	}

	if err != nil {
		return nil, "", err
	}

	// Another request may have changed or deleted the URL since. The answer has the one that this
	// request has set.
	e.URL = url

	return e, issued, nil
}

// SetURL looks again for half a second, so that a DELETE and a PUT in a row succeed while a
// worker runs. It waits no longer, because the request holds one of its account's places.
const (
	unsentLooks = 10
	unsentPause = 50 * time.Millisecond
)

func beingRemoved() error {
	return &delivery.Error{Code: delivery.CodeWebhookBeingRemoved, RetryAfter: time.Second,
		Message: "what waited for the removed receiver is still being recorded as not sent; try again in a moment"}
}

// Delete removes the URL and its secrets. What waits is recorded as not sent, by the worker that
// owns the partition. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) Delete(ctx context.Context, account delivery.AccountID) error {
	_, err := l.writeEndpoint(ctx, account, "delete")
	return err
}

// QueueTest publishes a webhook.test event; a receiver whose breaker is open is
// probed at once. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) QueueTest(ctx context.Context, account delivery.AccountID, now time.Time) (eventID string, err error) {
	if _, err := l.writeEndpoint(ctx, account, "probe"); err != nil {
		return "", err
	}
	return l.publish(ctx, &Notice{Account: account, Type: delivery.WebhookTest, OccurredAt: now, Data: testData(account)}, newNoticeID(), noticeLifetime)
}

// reportLifetime is for how long an id of a report is known: a year is closed in it, and audited.
const reportLifetime = 400 * 24 * time.Hour

// AnnounceReport publishes report.available to finance, once for each id: a repetition, also a concurrent
// one, changes nothing and is answered the same event id, which is made of the report's. It occurred now:
// a late announcement has its 24 hours, too. WEBHOOK_NOT_CONFIGURED; a URL that is deleted meanwhile
// leaves an event that is recorded as not sent.
func (l *Webhooks) AnnounceReport(ctx context.Context, report *delivery.AvailableReport, now time.Time) (eventID string, err error) {
	if _, err := l.Endpoint(ctx, delivery.FinanceAccount); err != nil {
		return "", err
	}
	return l.publish(ctx, &Notice{Account: delivery.FinanceAccount, Type: delivery.ReportAvailable, OccurredAt: now,
		Data: delivery.AppendReportAvailable(nil, report)},
		"evt_"+uuid.NewSHA1(uuid.UUID(delivery.FinanceAccount), []byte(report.ID)).String(), reportLifetime)
}

func testData(account delivery.AccountID) []byte {
	return append(strconv.AppendQuote([]byte(`{"accountId":`), account.String()), '}')
}

// SetLimits changes an endpoint's limits but negative ones. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) SetLimits(ctx context.Context, account delivery.AccountID, limits EndpointLimits) error {
	_, err := l.writeEndpoint(ctx, account, "limit", limitText(limits.InFlight), limitText(limits.PerSecond))
	return err
}

func limitText(n int) string {
	if n < 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// RotateSecret issues a new secret. The previous one signs for 24 hours more, earlier
// ones until their time, or none (revokeOld). WEBHOOK_NOT_CONFIGURED, TOO_MANY_SECRETS.
func (l *Webhooks) RotateSecret(ctx context.Context, account delivery.AccountID, revokeOld bool) (string, error) {
	secret := webhook.NewSecret()
	sealed, err := l.secrets.seal(account[:], secret)
	if err != nil {
		return "", err
	}
	if _, err := l.writeEndpoint(ctx, account, "rotate", flag(revokeOld), sealed, secretOverlap.Milliseconds()); err != nil {
		return "", err
	}
	return secret, nil
}

// Receiver is where events go, and what signs them. Immutable, by Version.
type Receiver struct {
	URL    string
	Secret string
	// Earlier secrets sign besides it until their time. Until Proven the spec's
	// header uses the first of them that is valid.
	Earlier []EarlierSecret
	Proven  bool  // a test event signed with Secret was accepted
	Version int64 // raised by every change of URL, secret or Proven
}

// Secrets are the secrets that sign at a time, newest first.
func (r *Receiver) Secrets(now time.Time) []string {
	secrets := []string{r.Secret}
	for _, one := range valid(r.Earlier, now) {
		secrets = append(secrets, one.Secret)
	}
	return secrets
}

// decodeReceiver opens the secrets that still sign; they are empty after an error.
func decodeReceiver(account delivery.AccountID, values map[string]string, keys SecretKeys, now time.Time) (*Receiver, error) {
	r := &Receiver{URL: values["url"], Proven: values["proven"] == "1", Version: number(values["version"])}
	if r.URL == "" {
		return r, nil
	}

	earlier, err := parseEarlier(values[earlierField])
	secrets := append([]EarlierSecret{{Secret: values[secretField]}}, valid(earlier, now)...)
	for i := range secrets {
		sealed := secrets[i].Secret
		secrets[i].Secret = ""
		if err == nil {
			secrets[i].Secret, err = keys.open(account[:], sealed)
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

// Reseal seals every webhook secret with the current key, which every program must have,
// so that older keys can be removed. It may be repeated. One that cannot be opened stays,
// and is an error after the others were sealed.
func (l *Webhooks) Reseal(ctx context.Context) (sealed int, err error) {
	notSealed := 0
	var reasons []string // why the first few were not sealed
	err = l.eachReceiver(ctx, func(ids []delivery.AccountID) error {
		for _, id := range ids {
			for _, field := range []string{secretField, earlierField} {
				n, err := l.resealField(ctx, id, field)
				if ctx.Err() != nil {
					return ctx.Err()
				}

				sealed += n
				if err == nil {
					continue
				}

				notSealed++
				if len(reasons) < 10 {
					reasons = append(reasons, fmt.Sprintf("account %s: %v", id, err))
				}
			}
		}

		return nil
	})

	if err == nil && notSealed > 0 {
		err = fmt.Errorf("%d webhook secrets were not sealed again: %s", notSealed, strings.Join(reasons, "; "))
	}

	return sealed, err
}

// resealField seals what a field of an endpoint holds with the current key, and returns how many secrets
// were not sealed with it. ErrConflict when others write the field all the time.
func (l *Webhooks) resealField(ctx context.Context, id delivery.AccountID, field string) (int, error) {
	key := l.partitionOf(id).keyOf(kindEndpoint, id[:])
	for range updateTries {
		before, err := l.rdb.HGet(ctx, key, field).Result()
		if errors.Is(err, redis.Nil) || err == nil && before == "" {
			return 0, nil
		}

		if err != nil {
			return 0, failure(err)
		}

		after, n, err := l.resealed(id, field, before)
		if err != nil || n == 0 {
			return 0, err
		}

		reply, err := l.runText(ctx, "reseal_secret", []string{key}, field, before, after)
		if err != nil || reply == "written" {
			return n, err
		}
	}

	return 0, ErrConflict
}

// resealed returns a field's value sealed with the current key, and how many of its secrets were not.
func (l *Webhooks) resealed(id delivery.AccountID, field, value string) (after string, n int, err error) {
	secrets := []EarlierSecret{{Secret: value}}
	if field == earlierField {
		secrets, err = parseEarlier(value)
		if err != nil {
			return "", 0, err
		}
	}

	for i := range secrets {
		isCurrent := strings.HasPrefix(secrets[i].Secret, l.secrets.Current+":")
		if isCurrent {
			continue
		}

		secret, err := l.secrets.open(id[:], secrets[i].Secret)
		if err != nil {
			return "", 0, err
		}
		secrets[i].Secret, err = l.secrets.seal(id[:], secret)
		if err != nil {
			return "", 0, err
		}

		n++
	}

	if field == earlierField {
		return packEarlier(secrets), n, nil
	}

	return secrets[0].Secret, n, nil
}
