package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// clerk looks after one account: changes its settings at the vendor's API and the operators', reads
// what they are, and has events sent again. It makes one request at a time.
type clerk struct {
	number  int
	vendor  *vendor
	api     *client.Client // the vendor's
	admin   *client.Client // the operators'
	ledger  *ledger.Ledger // past the proxies, to read only
	fleetID string
	random  *rand.Rand
	log     []validate.Operation // that have ended

	secret    string // the client secret that was issued last
	rotations int
	changes   int
}

// setting is something of an account that a clerk changes and reads.
type setting struct {
	name string

	// change sets it to something new, whose value it returns. Of a secret that was not answered that is
	// the one before, which works as well.
	change func(n int) (value string, answer *client.Answer, err error)

	// read asks what it is. The value is empty if the answer does not say it.
	read func() (value string, answer *client.Answer, err error)
}

func (c *clerk) settings() []setting {
	return []setting{
		{"limit", c.changeLimit, c.readLimit},
		{"store", c.renameStore, c.readStore},
		{"webhook", c.moveWebhook, c.readWebhook},
		{clientSecret, c.rotateSecret, c.logIn},
	}
}

// run acts until ctx ends. It finishes what it has begun.
func (c *clerk) run(ctx context.Context, pause time.Duration) {
	for harness.Sleep(ctx, time.Duration(c.random.Int64N(int64(2*pause)))) == nil {
		s := draw(c.random, c.settings())
		chance := c.random.IntN(10)
		switch {
		case chance < 5:
			c.set(s)
		case chance < 8:
			c.get(s)
		default:
			c.replay()
		}
	}
}

// readAll reads every setting once more, when the system has been healed.
func (c *clerk) readAll(ctx context.Context) error {
	const timeout = 20 * time.Second
	for _, s := range c.settings() {
		err := retry(ctx, timeout, func() error {
			isAnswered := c.get(s)
			if !isAnswered {
				return errors.New("it is not answered")
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading the setting %s: %w", s.name, err)
		}
	}

	return nil
}

func (c *clerk) set(s setting) {
	if s.name == clientSecret && c.rotations == maxRotations {
		c.get(s)
		return
	}

	c.changes++
	op := validate.Operation{Kind: validate.Set, Setting: s.name}
	c.do(&op, func() (*client.Answer, error) {
		value, answer, err := s.change(c.changes)
		op.Value = value
		return answer, err
	})
}

// get reports whether there was an answer that says what the setting is.
func (c *clerk) get(s setting) bool {
	op := validate.Operation{Kind: validate.Get, Setting: s.name}
	c.do(&op, func() (*client.Answer, error) {
		value, answer, err := s.read()
		op.Value = value
		return answer, err
	})
	return op.OK() || op.Value == validate.Refusal
}

// replay has an event sent again that the receiver has taken.
func (c *clerk) replay() {
	arrivals := c.vendor.inbox.Arrivals()
	if len(arrivals) == 0 {
		return
	}

	a := draw(c.random, arrivals)
	wasTaken := a.Answered >= 200 && a.Answered < 300 // another one is sent again anyway
	if !wasTaken || a.EventID == "" {
		return
	}

	op := validate.Operation{Kind: validate.Replay, Event: a.EventID}
	c.do(&op, func() (*client.Answer, error) {
		body := map[string]any{"eventIds": []string{a.EventID}}
		return c.onAccount(http.MethodPost, "/webhook/replay", body)
	})
}

// do logs a request with its answer, which is none if it cannot be read.
func (c *clerk) do(op *validate.Operation, send func() (*client.Answer, error)) {
	op.Client, op.Account, op.Start = c.number, c.vendor.AccountID, time.Now()
	answer, err := send()
	op.End = time.Now()
	if answer != nil {
		op.Status, op.Code = answer.Status, answer.Code
	}

	if err != nil && op.OK() {
		op.Value = "an answer that cannot be read"
	}

	c.log = append(c.log, *op)
}

// onAccount sends an operator's request. It is bounded by the client's timeout.
func (c *clerk) onAccount(method, path string, body any) (*client.Answer, error) {
	return c.admin.Do(context.Background(), method, "/accounts/"+c.vendor.AccountID+path, body)
}

// changeLimit changes a limit that no client of a round reaches.
func (c *clerk) changeLimit(n int) (value string, answer *client.Answer, err error) {
	most := 10_000 + n
	answer, err = c.onAccount(http.MethodPatch, "", map[string]any{"limits": map[string]any{"maxStores": most}})
	return strconv.Itoa(most), answer, err
}

func (c *clerk) readLimit() (value string, answer *client.Answer, err error) {
	var account struct {
		Limits struct{ MaxStores int }
	}
	answer, err = read(&account, func() (*client.Answer, error) { return c.onAccount(http.MethodGet, "", nil) })
	return strconv.Itoa(account.Limits.MaxStores), answer, err
}

// clerksStore is a store that has no orders.
const clerksStore = "clerk-1"

func (c *clerk) renameStore(n int) (value string, answer *client.Answer, err error) {
	body := stack.StoreBody(c.fleetID)
	value = fmt.Sprintf("Şube %d", n)
	body["name"] = value
	answer, err = c.api.Do(context.Background(), http.MethodPut, "/stores/"+clerksStore, body)
	return value, answer, err
}

// readStore reads the ledger: no API shows a store's name.
func (c *clerk) readStore() (value string, answer *client.Answer, err error) {
	account, err := delivery.ParseAccountID(c.vendor.AccountID)
	if err != nil {
		return "", nil, err
	}

	store, err := c.ledger.Stores.Get(context.Background(), account, clerksStore)
	read := &client.Answer{Status: http.StatusOK}
	if delivery.CodeOf(err) == delivery.CodeStoreNotFound {
		return "none", read, nil
	}

	if err != nil {
		return "", nil, err
	}

	return store.Name, read, nil
}

// moveWebhook gives the receiver another address, at which the same one is reached.
func (c *clerk) moveWebhook(n int) (value string, answer *client.Answer, err error) {
	value = fmt.Sprintf("http://%s/?n=%d", c.vendor.door.Addr, n)
	answer, err = c.api.Do(context.Background(), http.MethodPut, "/webhook", map[string]any{"url": value})
	return value, answer, err
}

func (c *clerk) readWebhook() (value string, answer *client.Answer, err error) {
	var webhook struct{ URL string }
	answer, err = read(&webhook, func() (*client.Answer, error) {
		return c.api.Do(context.Background(), http.MethodGet, "/webhook", nil)
	})
	return webhook.URL, answer, err
}

// clientSecret is the setting of that name. A clerk has it replaced maxRotations times: of the earlier
// ones four work at most.
const (
	clientSecret = "secret"
	maxRotations = 3
)

func (c *clerk) rotateSecret(int) (value string, answer *client.Answer, err error) {
	c.rotations++
	var issued struct{ ClientSecret string }
	answer, err = read(&issued, func() (*client.Answer, error) {
		return c.onAccount(http.MethodPost, "/credentials", map[string]any{})
	})
	if issued.ClientSecret != "" {
		c.secret = issued.ClientSecret
	}
	return validate.Digest([]byte(c.secret)), answer, err
}

// logIn asks for a token with the secret that was issued last, which must work whatever has happened
// since. It is the value of the setting if it does.
func (c *clerk) logIn() (value string, answer *client.Answer, err error) {
	body := map[string]any{"clientId": c.vendor.ClientID, "clientSecret": c.secret}
	answer, err = c.api.Do(context.Background(), http.MethodPost, "/token", body)
	if err == nil && answer.Status == http.StatusUnauthorized {
		return validate.Refusal, answer, nil
	}
	return validate.Digest([]byte(c.secret)), answer, err
}

// read sends a request and reads the data of a success into dst.
func read(dst any, send func() (*client.Answer, error)) (*client.Answer, error) {
	answer, err := send()
	if err == nil && answer.OK() {
		err = json.Unmarshal(answer.Data, dst)
	}
	return answer, err
}
