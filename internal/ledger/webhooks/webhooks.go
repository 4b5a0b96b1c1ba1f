package webhooks

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
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/webhook"
)

// Webhooks are the vendors' endpoints, their attempts and replays.
type Webhooks struct {
	core     *core.Client
	accounts *accounts.Accounts
	orders   *orders.Orders

	// MaxWaiting and unsentPause are the constants mostWaiting and unsentPause. Tests lower them.
	MaxWaiting  int
	UnsentPause time.Duration
}

// NewWebhooks returns the calls of endpoints.
func NewWebhooks(c *core.Client, accountList *accounts.Accounts, orderList *orders.Orders) *Webhooks {
	return &Webhooks{core: c, accounts: accountList, orders: orderList, MaxWaiting: MostWaiting, UnsentPause: UnsentPause}
}

// SecretOverlap is how long the previous secret still signs after a rotation.
const SecretOverlap = 24 * time.Hour

// WebhookEndpoint is an account's receiver and the state of its queue. Its secrets
// are empty without Config.Secrets.
type WebhookEndpoint struct {
	Account delivery.AccountID
	partitions.Receiver
	Limits                 partitions.EndpointLimits
	State                  partitions.EndpointState
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
func (l *Webhooks) decodeEndpoint(account delivery.AccountID, f *partitions.Facts, scheduled int64, first []redis.Z, owned bool) *WebhookEndpoint {
	if f.URL == "" {
		return nil
	}

	now := l.core.Now()
	if f.Unreadable != nil && len(l.core.Secrets.Keys) > 0 {
		l.core.Log.Error("webhook secret cannot be opened", "account", account, "error", f.Unreadable)
	}

	t := &f.Tally
	e := &WebhookEndpoint{
		Account: account, Receiver: f.Receiver, Limits: f.Limits, State: f.State, StateSince: core.TimeOf(f.StateSince),
		Backlog: scheduled + int64(f.Waiting), Unknown: !owned,
		HeldUntil: core.TimeOf(f.Breaker.Hold), BreakerOpen: f.Breaker.Open, Pace: math.Round(f.Breaker.Rate*10) / 10,
		Delivered: int64(t.Delivered), Retried: int64(t.Retried), Undelivered: int64(t.Undelivered), NotSent: int64(t.NotSent),
	}

	e.RecentOK, e.RecentFailed = t.Recent(now)
	if e.BreakerOpen {
		e.BreakerSince = core.TimeOf(f.Breaker.Since)
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
	names, errs := core.PipelinedEach(ctx, l.core.Redis, "reading the names of accounts", ids, func(pipe redis.Pipeliner, id delivery.AccountID) func() string {
		if id == delivery.FinanceAccount {
			return func() string { return delivery.FinanceName }
		}
		read := pipe.HMGet(ctx, l.core.PartitionOf(id).Account(id), "name")
		return func() string { return core.Text(read.Val()[0]) }
	})
	return names, core.Partly(errs)
}

// readEndpoints reads the endpoints that there are. With ErrIncomplete those of partitions that do not
// answer are missing.
func (l *Webhooks) readEndpoints(ctx context.Context, ids []delivery.AccountID) ([]*WebhookEndpoint, error) {
	all, errs := core.PipelinedEach(ctx, l.core.Redis, "reading webhook endpoints", ids, func(pipe redis.Pipeliner, account delivery.AccountID) func() *WebhookEndpoint {
		r := l.core.PartitionOf(account)
		values, scheduled := pipe.HGetAll(ctx, r.KeyOf(core.KindEndpoint, account[:])), pipe.ZCard(ctx, r.KeyOf(core.KindRetries, account[:]))
		first, owned := pipe.ZRangeWithScores(ctx, r.KeyOf(core.KindRetries, account[:]), 0, 0), pipe.Exists(ctx, r.Key(core.KindSummary))
		return func() *WebhookEndpoint {
			return l.decodeEndpoint(account, partitions.DecodeFacts(account, values.Val(), l.core.Secrets, l.core.Now()), scheduled.Val(), first.Val(), owned.Val() > 0)
		}
	})

	return core.Present(all), core.Partly(errs)
}

// WriteEndpoint returns the script's reply. All modes but set need a URL: WEBHOOK_NOT_CONFIGURED.
// TOO_MANY_SECRETS of rotate, WEBHOOK_BEING_REMOVED of set.
func (l *Webhooks) WriteEndpoint(ctx context.Context, account delivery.AccountID, mode string, args ...any) (string, error) {
	r := l.core.PartitionOf(account)
	keys := []string{r.KeyOf(core.KindEndpoint, account[:]), r.Key(core.KindNotes), r.List(core.ListReceivers)}
	return l.core.RunWord(ctx, "write_endpoint",
		core.Refusals{"missing": webhookNotConfigured(), "full": core.TooManySecrets(), "waiting": beingRemoved()},
		keys, append([]any{r.Prefix, account[:], mode}, args...)...)
}

// SetURL registers or changes a URL, which takes the whole backlog; the same one is
// probed if its breaker is open. The first issues a secret, which is returned this once.
// WEBHOOK_BEING_REMOVED while a worker still records what waited for a URL that was deleted.
func (l *Webhooks) SetURL(ctx context.Context, account delivery.AccountID, url string) (e *WebhookEndpoint, issued string, err error) {
	secret := webhook.NewSecret()
	sealed, err := l.core.Secrets.Seal(account[:], secret)
	if err != nil {
		return nil, "", err
	}

	reply, err := l.WriteEndpoint(ctx, account, "set", url, sealed)
	for range UnsentLooks {
		if delivery.CodeOf(err) != delivery.CodeWebhookBeingRemoved {
			break
		}
		core.Sleep(ctx, l.UnsentPause)
		reply, err = l.WriteEndpoint(ctx, account, "set", url, sealed)
	}

	if err != nil {
		return nil, "", err
	}

	if reply == "issued" {
		issued = secret
	}

	e, err = l.Endpoint(ctx, account)
	if delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured {
		e, err = &WebhookEndpoint{Account: account, State: partitions.EndpointHealthy, StateSince: l.core.Now()}, nil
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
	UnsentLooks = 10
	UnsentPause = 50 * time.Millisecond
)

func beingRemoved() error {
	return &delivery.Error{Code: delivery.CodeWebhookBeingRemoved, RetryAfter: time.Second,
		Message: "what waited for the removed receiver is still being recorded as not sent; try again in a moment"}
}

// Delete removes the URL and its secrets. What waits is recorded as not sent, by the worker that
// owns the partition. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) Delete(ctx context.Context, account delivery.AccountID) error {
	_, err := l.WriteEndpoint(ctx, account, "delete")
	return err
}

// QueueTest publishes a webhook.test event; a receiver whose breaker is open is
// probed at once. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) QueueTest(ctx context.Context, account delivery.AccountID, now time.Time) (eventID string, err error) {
	if _, err := l.WriteEndpoint(ctx, account, "probe"); err != nil {
		return "", err
	}
	return l.PublishAs(ctx, &accounts.Notice{Account: account, Type: delivery.WebhookTest, OccurredAt: now, Data: partitions.TestData(account)}, accounts.NewNoticeID(), accounts.NoticeLifetime)
}

// ReportLifetime is for how long an id of a report is known: a year is closed in it, and audited.
const ReportLifetime = 400 * 24 * time.Hour

// AnnounceReport publishes report.available to finance, once for each id: a repetition, also a concurrent
// one, changes nothing and is answered the same event id, which is made of the report's. It occurred now:
// a late announcement has its 24 hours, too. WEBHOOK_NOT_CONFIGURED; a URL that is deleted meanwhile
// leaves an event that is recorded as not sent.
func (l *Webhooks) AnnounceReport(ctx context.Context, report *delivery.AvailableReport, now time.Time) (eventID string, err error) {
	if _, err := l.Endpoint(ctx, delivery.FinanceAccount); err != nil {
		return "", err
	}
	return l.PublishAs(ctx, &accounts.Notice{Account: delivery.FinanceAccount, Type: delivery.ReportAvailable, OccurredAt: now,
		Data: delivery.AppendReportAvailable(nil, report)},
		"evt_"+uuid.NewSHA1(uuid.UUID(delivery.FinanceAccount), []byte(report.ID)).String(), ReportLifetime)
}

// SetLimits changes an endpoint's limits but negative ones. WEBHOOK_NOT_CONFIGURED.
func (l *Webhooks) SetLimits(ctx context.Context, account delivery.AccountID, limits partitions.EndpointLimits) error {
	_, err := l.WriteEndpoint(ctx, account, "limit", limitText(limits.InFlight), limitText(limits.PerSecond))
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
	sealed, err := l.core.Secrets.Seal(account[:], secret)
	if err != nil {
		return "", err
	}
	if _, err := l.WriteEndpoint(ctx, account, "rotate", core.FlagText(revokeOld), sealed, SecretOverlap.Milliseconds()); err != nil {
		return "", err
	}
	return secret, nil
}

// Reseal seals every webhook secret with the current key, which every program must have,
// so that older keys can be removed. It may be repeated. One that cannot be opened stays,
// and is an error after the others were sealed.
func (l *Webhooks) Reseal(ctx context.Context) (sealed int, err error) {
	notSealed := 0
	var reasons []string // why the first few were not sealed
	err = l.eachReceiver(ctx, func(ids []delivery.AccountID) error {
		for _, id := range ids {
			for _, field := range []string{core.SecretField, core.EarlierField} {
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
	key := l.core.PartitionOf(id).KeyOf(core.KindEndpoint, id[:])
	for range core.UpdateTries {
		before, err := l.core.Redis.HGet(ctx, key, field).Result()
		if errors.Is(err, redis.Nil) || err == nil && before == "" {
			return 0, nil
		}

		if err != nil {
			return 0, core.Failure(err)
		}

		after, n, err := l.resealed(id, field, before)
		if err != nil || n == 0 {
			return 0, err
		}

		reply, err := l.core.RunText(ctx, "reseal_secret", []string{key}, field, before, after)
		if err != nil || reply == "written" {
			return n, err
		}
	}

	return 0, core.ErrConflict
}

// resealed returns a field's value sealed with the current key, and how many of its secrets were not.
func (l *Webhooks) resealed(id delivery.AccountID, field, value string) (after string, n int, err error) {
	secrets := []core.EarlierSecret{{Secret: value}}
	if field == core.EarlierField {
		secrets, err = core.ParseEarlier(value)
		if err != nil {
			return "", 0, err
		}
	}

	for i := range secrets {
		isCurrent := strings.HasPrefix(secrets[i].Secret, l.core.Secrets.Current+":")
		if isCurrent {
			continue
		}

		secret, err := l.core.Secrets.Open(id[:], secrets[i].Secret)
		if err != nil {
			return "", 0, err
		}
		secrets[i].Secret, err = l.core.Secrets.Seal(id[:], secret)
		if err != nil {
			return "", 0, err
		}

		n++
	}

	if field == core.EarlierField {
		return core.PackEarlier(secrets), n, nil
	}

	return secrets[0].Secret, n, nil
}

// Page reads receivers in a state, or in any, at most limit: the worst first, and of one state
// those that have been in it for longest. A page may have fewer although others follow: next is
// empty at the end. A receiver whose state changes between two pages may be on both or on none.
// VALIDATION_FAILED for a cursor that no page had. With ErrIncomplete the receivers of partitions that
// do not answer are left out, and next is valid.
func (l *Webhooks) Page(ctx context.Context, state partitions.EndpointState, cursor string, limit int) (endpoints []*WebhookEndpoint, next string, err error) {
	endpoints, next, err = l.receivers(ctx, partitions.ReceiverScores(state), cursor, limit)
	endpoints = slices.DeleteFunc(endpoints, func(e *WebhookEndpoint) bool { return state != "" && e.State != state })
	return endpoints, next, err
}

// Unhealthy reads the worst receivers, as Page orders them, at most limit. With ErrIncomplete those of
// partitions that do not answer are left out.
func (l *Webhooks) Unhealthy(ctx context.Context, limit int) ([]*WebhookEndpoint, error) {
	worse := core.ScoreRange{First: 0, Last: partitions.ReceiverScores(partitions.EndpointHealthy).First - 1}
	endpoints, _, err := l.receivers(ctx, worse, "", limit)
	return endpoints, err
}

func (l *Webhooks) receivers(ctx context.Context, scores core.ScoreRange, cursor string, limit int) (endpoints []*WebhookEndpoint, next string, err error) {
	ids, next, incomplete := l.core.ListPage(ctx, core.ListReceivers, scores, cursor, limit)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, "", incomplete
	}

	endpoints, err = l.readEndpoints(ctx, ids)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, "", err
	}

	if incomplete != nil {
		return endpoints, next, incomplete
	}
	return endpoints, next, err
}

// EndpointsOf reads the receivers of accounts, in their order, without those that have none. With
// ErrIncomplete those of partitions that do not answer are left out.
func (l *Webhooks) EndpointsOf(ctx context.Context, accounts []delivery.AccountID) ([]*WebhookEndpoint, error) {
	return l.readEndpoints(ctx, accounts)
}

// Counts counts the receivers in each state without reading them. With ErrIncomplete the counts lack
// those of partitions that do not answer.
func (l *Webhooks) Counts(ctx context.Context) (map[partitions.EndpointState]int64, error) {
	ranges := make([]core.ScoreRange, len(partitions.EndpointStates))
	for i, state := range partitions.EndpointStates {
		ranges[i] = partitions.ReceiverScores(state)
	}

	counted, err := l.core.ListCounts(ctx, core.ListReceivers, ranges...)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, err
	}

	counts := make(map[partitions.EndpointState]int64)
	for i, state := range partitions.EndpointStates {
		counts[state] = counted[i]
	}

	return counts, err
}

// eachReceiver is eachAccount for those who may have an endpoint: finance, too.
func (l *Webhooks) eachReceiver(ctx context.Context, do func([]delivery.AccountID) error) error {
	if err := do([]delivery.AccountID{delivery.FinanceAccount}); err != nil {
		return err
	}
	return l.core.EachAccount(ctx, do)
}

// Attempts is an account's log, newest first, at most 200 and 256 kB; state "": all.
func (l *Webhooks) Attempts(ctx context.Context, account delivery.AccountID, state string) ([]partitions.AttemptRecord, error) {
	records, err := l.LastAttempts(ctx, account, partitions.AttemptsShown)
	return slices.DeleteFunc(records, func(a partitions.AttemptRecord) bool { return state != "" && a.State != state }), err
}

// LastAttempts are the newest n lines of an account's log, newest first.
func (l *Webhooks) LastAttempts(ctx context.Context, account delivery.AccountID, n int) ([]partitions.AttemptRecord, error) {
	r := l.core.PartitionOf(account)
	lines, err := l.core.Redis.LRange(ctx, r.KeyOf(core.KindAttemptLog, account[:]), 0, int64(n)-1).Result()
	if err != nil {
		return nil, core.Failed("reading the attempt log", err)
	}

	records := make([]partitions.AttemptRecord, 0, len(lines))
	for _, line := range lines {
		chunk := []string{line}
		if f := (core.Fields{Rest: line}); f.Byte() == partitions.LineChunk {
			for chunk = nil; f.Rest != ""; {
				chunk = append(chunk, f.Text())
			}
		}

		for _, line := range slices.Backward(chunk) {
			record, err := partitions.DecodeLine(r, line)
			if err != nil {
				return nil, err
			}
			records = append(records, record)
		}
	}

	return records[:min(n, len(records))], nil
}

// Publish appends notices to the event streams of their accounts.
func (l *Webhooks) Publish(ctx context.Context, notices ...accounts.Notice) error {
	for i := range notices {
		if _, err := l.PublishAs(ctx, &notices[i], notices[i].ID(), accounts.NoticeLifetime); err != nil {
			return err
		}
	}
	return nil
}

// PublishAs stores a notice under the given event id, for as long as lifetime, and appends its event to
// the account's partition. It returns eventID, also beside an error.
func (l *Webhooks) PublishAs(ctx context.Context, n *accounts.Notice, eventID string, lifetime time.Duration) (string, error) {
	r := l.core.PartitionOf(n.Account)
	_, err := l.core.Run(ctx, "publish_notices", []string{r.Key(core.KindEvents)},
		r.Prefix, lifetime.Milliseconds(), eventID, accounts.EncodeNotice(n))
	return eventID, err
}
