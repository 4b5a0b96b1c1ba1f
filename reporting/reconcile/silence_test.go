package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// A day of which ClickHouse has events and nothing else.
func TestReconcile_EventsWithoutAnyOrder(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.ClickHouse.Exec(t, fmt.Sprintf(`INSERT INTO %[1]s.order_events SELECT * REPLACE (business_day - 1 AS business_day,
		'0190163d-8694-8dbd-8e88-000000000000'::UUID AS account_id, '0190163d-8694-8dbd-8e88-000000000000'::UUID AS order_id)
		FROM %[1]s.order_events LIMIT 1`, s.Database))
	if found, _ := s.compare(Scope{}); len(found) != 1 || !strings.Contains(found[0], "Redis never had it") {
		t.Errorf("found %q", found)
	}
}

// What has left Redis had ended, lies where its id says, and has as many events
// as its version counts.
func TestReconcile_WhatHasLeftRedisMustMakeSense(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"it never ended":       "ALTER TABLE orders UPDATE status = 'Delivering', delivered_at = NULL, ended_at = NULL WHERE order_id = '%s'",
		"an event is missing":  "ALTER TABLE order_events DELETE WHERE order_id = '%s' AND sequence = 3",
		"a row of a day after": "INSERT INTO TABLE orders SELECT * REPLACE (business_day + 1 AS business_day) FROM DB.orders WHERE order_id = '%s'",
		"another account":      "INSERT INTO TABLE orders SELECT * REPLACE ('0190163d-8694-8dbd-8e88-000000000000'::UUID AS account_id) FROM DB.orders WHERE order_id = '%s'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCompared(t)
			o := s.Delivered(s.today.Add(13 * time.Hour))
			s.AwaitExported()
			s.retireAll()
			s.tied()
			s.spoil(strings.ReplaceAll(fmt.Sprintf(statement, o.ID), "DB.", s.Database+"."))
			if found, _ := s.compare(Scope{}); len(found) != 1 || !strings.Contains(found[0], o.ID.String()) {
				t.Errorf("found %q; stored is\n%s", found, s.ClickHouse.Exec(t, fmt.Sprintf(
					"SELECT account_id, business_day, version, status FROM %s.orders WHERE order_id = '%s'", s.Database, o.ID)))
			}
		})
	}
}

// One record that cannot be read is told, and hides nothing else.
func TestReconcile_UnreadableOrderHidesNothing(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	bad, wrong := s.Delivered(s.today.Add(-11*time.Hour)), s.Delivered(s.today.Add(13*time.Hour))
	s.AwaitExported()
	s.breakRecord(bad)
	s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", wrong.ID))
	var found []string
	err := s.reconciler.Run(t.Context(), Scope{From: s.today.AddDate(0, 0, -1), To: s.today, Patience: 20 * time.Second}, func(d *Day) {
		for i := range d.Differences {
			found = append(found, d.Differences[i].String())
		}
		if len(d.Totals) > 0 {
			t.Errorf("%s: %q", d.Day.Format(time.DateOnly), d.Totals)
		}
	})
	if err == nil || errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("of the unreadable one: %v", err)
	}
	mine := 0
	for _, text := range found {
		if strings.Contains(text, wrong.ID.String()) {
			mine++
		}
	}
	if mine != 1 {
		t.Errorf("found %q, want the one of %s", found, wrong.ID)
	}
}

// breakRecord cuts an order's record behind its head.
func (s *compared) breakRecord(o *delivery.Order) {
	s.T.Helper()
	s.Record("o", o.ID.Digest(), "redis.call('SET', k, string.sub(redis.call('GET', k), 1, 150))")
}

// Ids of a stream may be ahead of this machine's clock: it is behind, or Redis's
// was set back, after which ids go on from the last one. What is not exported is
// waited for all the same.
func TestReconcile_StreamsAheadOfTheClock(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.EachKey("e", fmt.Sprintf(`redis.call('XADD', k, '%d-0', 'e', '\2evt_x')`,
		time.Now().Add(10*time.Second).UnixMilli()))
	s.AwaitExported()
	s.stop()
	s.Delivered(s.today.Add(13 * time.Hour))
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today, Patience: 300 * time.Millisecond}, func(d *Day) {
		t.Errorf("judged: %+v", d.Differences)
	})
	if !errors.Is(err, ErrBehind) {
		t.Errorf("without an exporter: %v", err)
	}
}

// What changes while the days are being read is not exported yet either.
func TestReconcile_OrderMovesDuringTheLook(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	o := s.Vendor.Order("", s.today.Add(13*time.Hour))
	s.AwaitExported()
	s.stop()
	g := newGate(t, s.Env)
	var once sync.Once
	g.stand(func(statement string) bool {
		if strings.Contains(statement, "toString(external_order_id)") {
			once.Do(func() {
				time.Sleep(2500 * time.Millisecond)
				s.Move(o, delivery.Assigned, s.today.Add(14*time.Hour))
			})
		}
		return true
	}, nil)
	err := New(s.Ledger, g.Archive).Run(t.Context(), Scope{From: s.today, To: s.today, Patience: 300 * time.Millisecond}, func(d *Day) {
		t.Errorf("judged: %+v", d.Differences)
	})
	if !errors.Is(err, ErrBehind) {
		t.Errorf("without an exporter: %v", err)
	}
}
