//go:build long

package systemtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// acknowledged is an order that was answered 201.
type acknowledged struct {
	key    string
	body   map[string]any
	answer []byte
	id     string
	status string // when it was last looked at
}

var statusRank = map[string]int{"Searching": 1, "Assigned": 2, "PickingUp": 3, "PickedUp": 4, "Delivering": 5,
	"Delivered": 6, "Failed": 6, "Cancelled": 6}

// creating creates orders until it is stopped, and remembers every one that was
// acknowledged.
type creating struct {
	mu   sync.Mutex
	made []*acknowledged
	stop func()
}

func startCreating(t *testing.T, v account) *creating {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &creating{}
	var all sync.WaitGroup
	c.stop = func() { cancel(); all.Wait() }
	t.Cleanup(c.stop)
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			o := &acknowledged{key: fmt.Sprintf("backup-%d", n), body: v.Order(nil)}
			a, err := v.Do(ctx, http.MethodPost, "/orders", o.body, "X-Idempotency-Key", o.key)
			if err != nil {
				continue // stopped, or the answer was lost: not acknowledged
			}

			o.read(t, a)
			c.mu.Lock()
			c.made = append(c.made, o)
			c.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
	})

	return c
}

func (o *acknowledged) read(t *testing.T, a *client.Answer) {
	var made struct{ OrderID string }
	if err := a.Into(&made); err != nil {
		t.Errorf("order %s: %v", o.key, err)
	}
	o.id, o.answer = made.OrderID, bytes.Clone(a.Raw)
}

func (c *creating) all() []*acknowledged {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*acknowledged(nil), c.made...)
}

// A backup is made of the running system, which goes on and is then lost for good.
// It holds everything that was acknowledged before it began; the restored system
// goes on from there, and its reports tie.
func TestBackup_RestoresWhatWasAcknowledgedBeforeIt(t *testing.T) {
	t.Parallel()

	data, to := t.TempDir(), filepath.Join(t.TempDir(), "backups", "first")
	// Tracking links, which creations answer, name the panel.
	panel := stack.FreeAddr()
	o := stack.Options{DataDir: data, PanelAddr: panel, CourierStep: 200 * time.Millisecond, Reporting: true}
	s := startStack(t, o)
	v := s.Account(t, stack.Unlimited)
	var up atomic.Bool // of the vendor's receiver, which refuses everything until the end
	url, handle := listen(t)
	received, err := receiver.New(receiver.Options{Secrets: []string{v.SetWebhook(t, url)}})
	must(t, err)
	handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		received.ServeHTTP(w, r)
	}))

	v.AwaitStore(t, s)
	c := startCreating(t, v)
	await(t, "an order is delivered", func() bool {
		made := c.all()
		return len(made) > 30 && s.StatusOf(t, made[0].id) == "Delivered"
	})

	before := c.all()
	for _, o := range before {
		o.status = s.StatusOf(t, o.id)
	}

	backUp(t, s, data, to)
	afterwards := len(c.all())
	await(t, "the system goes on after the backup", func() bool { return len(c.all()) > afterwards+20 })
	c.stop()
	s.Stop()
	loseAndRestore(t, data, to)
	s2 := startStack(t, o)
	if s2.Demo.Account != s.Demo.Account || s2.Demo.Fleet != s.Demo.Fleet || s2.Demo.AdminKey != s.Demo.AdminKey {
		t.Errorf("credentials changed:\n%+v\n%+v", s.Demo, s2.Demo)
	}

	v = s2.Login(t, stack.DemoAccount{AccountID: v.AccountID, ClientID: v.ClientID, ClientSecret: v.ClientSecret})
	up.Store(true)
	checkRestored(t, s2, v, before, c.all())
	for _, o := range before {
		await(t, "every webhook of "+o.key+" arrives, also those that waited", func() bool {
			return fmt.Sprint(statuses(received.Timeline(o.id))) == "[Assigned PickingUp PickedUp Delivering Delivered]"
		})
	}

	if counts := received.Counts(); counts.Changed > 0 || len(counts.Invalid) > 0 {
		t.Errorf("webhooks after the restore: %+v", counts)
	}

	checkReports(t, s2, v, c.all())
}

func backUp(t *testing.T, s *stackEnv, data, to string) {
	t.Helper()
	out, err := s.Command(t, stack.BackupUser, "backup", "--to", to,
		"--include", filepath.Join(data, "keys"), "--include", filepath.Join(data, "demo.json"))
	if err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	t.Log(out)
}

// loseAndRestore wipes what the system has, and puts the backup in its place. Where
// something is, it is not put.
func loseAndRestore(t *testing.T, data, from string) {
	t.Helper()
	o := stack.Options{DataDir: data, BinDir: testserver.Programs(t)}
	if err := stack.Restore(t.Context(), o, from, false); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Fatalf("over what is there: %v", err)
	}

	for _, name := range []string{"redis", "clickhouse", "keys", "demo.json", "demo.env"} {
		must(t, os.RemoveAll(filepath.Join(data, name)))
	}

	var said strings.Builder
	o.Out = &said
	if err := stack.Restore(t.Context(), o, from, false); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}

	t.Log(said.String())
}

// checkRestored wants every order of before to be there, no less far, and its
// creation to be answered as it was. What was created later may be lost; a vendor
// who repeats it has it.
func checkRestored(t *testing.T, s *stackEnv, v account, before, all []*acknowledged) {
	t.Helper()
	for i, o := range all {
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", o.body, "X-Idempotency-Key", o.key)
		must(t, err)
		replayed := a.Header.Get("Idempotent-Replayed") == "true"
		if i < len(before) {
			if !replayed || !bytes.Equal(a.Raw, o.answer) {
				t.Fatalf("order %s was acknowledged before the backup; its repetition is answered %s, was %s", o.key, a.Raw, o.answer)
			}
			if status := s.StatusOf(t, o.id); statusRank[status] < statusRank[o.status] {
				t.Errorf("order %s is %s, was %s before the backup", o.key, status, o.status)
			}
		}

		o.read(t, a)
	}
}

// checkReports wants all orders in the reports, once and delivered, and Redis and
// ClickHouse to agree.
func checkReports(t *testing.T, s *stackEnv, v account, all []*acknowledged) {
	t.Helper()
	reports := client.New(s.Demo.PanelURL+"/reports", 2)
	reports = reports.As(reports.Base, s.Demo.ReportsToken)
	day := time.Now().UTC()
	path := fmt.Sprintf("/order-ledger.json?account=%s&from=%s&to=%s", v.AccountID,
		day.AddDate(0, 0, -1).Format(time.DateOnly), day.AddDate(0, 0, 1).Format(time.DateOnly))
	var known, statuses map[string]int
	await(t, "every order is delivered in the reports", func() bool {
		var ledger struct {
			Rows []struct{ OrderID, Status string }
		}
		must(t, reports.Call(t.Context(), http.MethodGet, path, nil, &ledger))
		known, statuses = map[string]int{}, map[string]int{}
		for _, row := range ledger.Rows {
			known[row.OrderID]++
			statuses[row.Status]++
		}

		return statuses["Delivered"] > len(all)
	})

	if len(statuses) != 1 {
		t.Errorf("in the reports are %v, all of %d orders should be delivered", statuses, len(all)+1)
	}

	for _, o := range all {
		if known[o.id] != 1 {
			t.Errorf("order %s is %d times in the ledger of orders", o.key, known[o.id])
		}
	}

	if len(known) != len(all)+1 { // and the one that waited for the store
		t.Errorf("%d orders are in the reports, %d were made", len(known), len(all)+1)
	}

	out, err := s.Command(t, stack.ReportingUser, "reconcile")
	if err != nil {
		t.Errorf("reconcile: %v\n%s", err, out)
	}

	t.Log(out)
}
