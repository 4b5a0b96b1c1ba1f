package ledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/webhook"
)

// EndpointState is what operators see of a receiver (design section 7). Nothing
// is ever disabled: it only tells.
type EndpointState string

// The states. Failing: the last attempt failed; unreachable: an event was given
// up after 24 hours; gone: it answered 410. A success makes it healthy.
const (
	EndpointHealthy     EndpointState = "healthy"
	EndpointFailing     EndpointState = "failing"
	EndpointUnreachable EndpointState = "unreachable"
	EndpointGone        EndpointState = "gone"
)

// secretOverlap is how long the previous secret still signs after a rotation.
const secretOverlap = 24 * time.Hour

// WebhookEndpoint is where an account's events go.
type WebhookEndpoint struct {
	Account        delivery.AccountID
	URL            string
	Secret         string
	PreviousSecret string // empty when none is valid any more
	PreviousUntil  time.Time
	// Proven: a test event signed with Secret was accepted. Until then, and
	// while there is a PreviousSecret, the spec's header is keyed with that one.
	Proven     bool
	State      EndpointState
	StateSince time.Time
	Version    int64 // raised by every change of URL or secret
	Backlog    int64 // events that wait or are being sent
	// NextAttempt is when the queue will next be looked at; zero: nothing waits.
	NextAttempt time.Time
	// Attempts by how they ended, since the account exists.
	Delivered, Retried, Undelivered, NotSent int64
}

func webhookNotConfigured() error {
	return delivery.Refuse(delivery.CodeWebhookNotConfigured, "no webhook URL is registered")
}

func (l *Ledger) decodeEndpoint(account delivery.AccountID, values map[string]string) (*WebhookEndpoint, error) {
	e := &WebhookEndpoint{
		Account: account, URL: values["url"], Proven: values["proven"] == "1",
		State: EndpointState(values["state"]), StateSince: timeOf(number(values["since"])), Version: number(values["version"]),
		Delivered: number(values["delivered"]), Retried: number(values["retrying"]),
		Undelivered: number(values["undelivered"]), NotSent: number(values["notSent"]),
	}
	if e.URL == "" {
		return e, nil
	}
	var err error
	if e.Secret, err = l.secrets.open(account[:], values["secret"]); err != nil {
		return nil, fmt.Errorf("webhook of account %s: %w", account, err)
	}
	if until := timeOf(number(values["old_until"])); time.Now().Before(until) {
		if e.PreviousSecret, err = l.secrets.open(account[:], values["old_secret"]); err != nil {
			return nil, fmt.Errorf("webhook of account %s: %w", account, err)
		}
		e.PreviousUntil = until
	}
	return e, nil
}

// WebhookEndpoint reads an account's endpoint with the state of its queue.
// WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) WebhookEndpoint(ctx context.Context, account delivery.AccountID) (*WebhookEndpoint, error) {
	r := l.roomOf(account)
	pipe := l.rdb.Pipeline()
	values := pipe.HGetAll(ctx, r.keyOf(kindEndpoint, account[:]))
	waiting := pipe.LLen(ctx, r.keyOf(kindQueue, account[:]))
	retrying := pipe.ZCard(ctx, r.keyOf(kindRetries, account[:]))
	leased := pipe.ZCard(ctx, r.keyOf(kindLeases, account[:]))
	next := pipe.ZScore(ctx, r.key(kindSchedule), string(account[:]))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("reading a webhook endpoint: %w", failure(err))
	}
	e, err := l.decodeEndpoint(account, values.Val())
	if err != nil {
		return nil, err
	}
	if e.URL == "" {
		return nil, webhookNotConfigured()
	}
	e.Backlog = waiting.Val() + retrying.Val() + leased.Val()
	if next.Err() == nil {
		e.NextAttempt = time.UnixMilli(int64(next.Val()))
	}
	return e, nil
}

func (l *Ledger) writeEndpoint(ctx context.Context, account delivery.AccountID, mode, url, sealed string) (string, error) {
	r := l.roomOf(account)
	now := time.Now()
	return l.runText(ctx, l.scripts.writeEndpoint, []string{r.keyOf(kindEndpoint, account[:])},
		r.prefix, account[:], now.UnixMilli(), mode, url, sealed, now.Add(secretOverlap).UnixMilli())
}

// SetWebhookURL registers or changes an account's URL. The first registration
// issues a secret, which is returned this once; issued is empty when the
// account's secret stays. A changed URL takes the whole waiting backlog.
func (l *Ledger) SetWebhookURL(ctx context.Context, account delivery.AccountID, url string) (e *WebhookEndpoint, issued string, err error) {
	secret := webhook.NewSecret()
	sealed, err := l.secrets.seal(account[:], secret)
	if err != nil {
		return nil, "", err
	}
	reply, err := l.writeEndpoint(ctx, account, "set", url, sealed)
	if err != nil {
		return nil, "", err
	}
	if reply == "issued" {
		issued = secret
	}
	e, err = l.WebhookEndpoint(ctx, account)
	return e, issued, err
}

// DeleteWebhook removes the URL and its secrets. What waits is recorded as not
// sent. WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) DeleteWebhook(ctx context.Context, account delivery.AccountID) error {
	reply, err := l.writeEndpoint(ctx, account, "delete", "", "")
	if err == nil && reply == "missing" {
		err = webhookNotConfigured()
	}
	return err
}

// RotateWebhookSecret issues a new secret; the old one signs besides it for 24
// hours. WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) RotateWebhookSecret(ctx context.Context, account delivery.AccountID) (string, error) {
	secret := webhook.NewSecret()
	sealed, err := l.secrets.seal(account[:], secret)
	if err != nil {
		return "", err
	}
	reply, err := l.writeEndpoint(ctx, account, "rotate", "", sealed)
	if err == nil && reply == "missing" {
		err = webhookNotConfigured()
	}
	if err != nil {
		return "", err
	}
	return secret, nil
}

// QueueTest publishes a webhook.test event; it goes the way of every event.
// WEBHOOK_NOT_CONFIGURED.
func (l *Ledger) QueueTest(ctx context.Context, account delivery.AccountID, now time.Time) (eventID string, err error) {
	if _, err := l.WebhookEndpoint(ctx, account); err != nil {
		return "", err
	}
	data := strconv.AppendQuote([]byte(`{"accountId":`), account.String())
	return l.publish(ctx, &Notice{Account: account, Type: delivery.WebhookTest, OccurredAt: now, Data: append(data, '}')}, newNoticeID())
}
