package judge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
)

// The database of the archive (design section 8).
const database = "delivery"

// queryTime bounds one question; a round has some thousand rows.
const queryTime = time.Minute

// readArchive reads every table FINAL.
func (s *Sources) readArchive(ctx context.Context, f *Facts) error {
	if s.ClickHouseURL == "" {
		return nil
	}
	f.Archive = new(Archive)
	err := query(ctx, s, selectOrders, func(r *orderRow) { f.Archive.Orders = append(f.Archive.Orders, r.order()) })
	if err != nil {
		return fmt.Errorf("orders: %w", err)
	}
	err = query(ctx, s, selectEvents, func(r *eventRow) {
		f.Archive.Events = append(f.Archive.Events, ArchivedEvent{Order: r.Order, Account: r.Account, Sequence: r.Sequence,
			Version: r.Version, Status: r.Status, At: moment(r.At), Failure: r.Failure})
	})
	if err != nil {
		return fmt.Errorf("order_events: %w", err)
	}
	err = query(ctx, s, selectAttempts, func(r *attemptRow) {
		f.Archive.Attempts = append(f.Archive.Attempts, Attempt{Account: r.Account, EventID: r.EventID, State: r.State, Attempt: r.Attempt,
			At: moment(r.At), Took: time.Duration(r.Took) * time.Millisecond, Recorded: recorded(r.Entry), Probe: r.Probe != 0, Replay: r.Replay != 0})
	})
	if err != nil {
		return fmt.Errorf("webhook_outcomes: %w", err)
	}
	return nil
}

// Times are milliseconds since 1970, -1 for NULL; amounts are text, empty for
// NULL; ids are text. None of it depends on the server's settings.
const (
	selectOrders = `SELECT toString(order_id) AS id, toString(account_id) AS account, external_order_id AS external, status,
		toString(version) AS version, toUnixTimestamp64Milli(created_at) AS created, failure_reason AS failure, cancel_reason AS cancel,
		external_store_id AS store, toString(fleet_id) AS fleet, payment_type AS payment,
		ifNull(toString(order_amount), '') AS amount, ifNull(toString(collection_amount), '') AS collection,
		arrayMap(t -> ifNull(toUnixTimestamp64Milli(t), -1), [toNullable(ordered_at), toNullable(ready_at), toNullable(assigned_at),
			toNullable(picked_up_at), toNullable(delivered_at), toNullable(ended_at), toNullable(updated_at)]) AS times
		FROM ` + database + `.orders FINAL`
	selectEvents = `SELECT toString(order_id) AS order, toString(account_id) AS account, sequence, toString(version) AS version, status,
		toUnixTimestamp64Milli(at) AS time, failure_reason AS failure FROM ` + database + `.order_events FINAL`
	selectAttempts = `SELECT toString(account_id) AS account, event_id AS eventId, state, attempt, toUnixTimestamp64Milli(at) AS time,
		milliseconds AS took, entry, toUInt8(probe) AS probe, toUInt8(replay) AS replay FROM ` + database + `.webhook_outcomes FINAL`
)

type orderRow struct {
	ID, Account, External, Status, Failure, Cancel string
	Version                                        uint64 `json:",string"`
	Created                                        number
	Store, Fleet, Payment, Amount, Collection      string
	Times                                          [7]number
}

type eventRow struct {
	Order, Account, Status, Failure string
	Sequence                        uint32
	Version                         uint64 `json:",string"`
	At                              number `json:"time"`
}

type attemptRow struct {
	Account, EventID, State string
	Attempt                 int
	At                      number `json:"time"`
	Took                    int64
	Entry                   string // of the stream, "milliseconds-number"
	Probe, Replay           int
}

// number is a 64-bit integer, in quotes or not: servers differ.
type number int64

// UnmarshalJSON reads it.
func (n *number) UnmarshalJSON(b []byte) error {
	value, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	*n = number(value)
	return err
}

// recorded is when an entry of a stream was written, by its name.
func recorded(entry string) time.Time {
	text, _, _ := strings.Cut(entry, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return moment(number(ms))
}

func moment(ms number) time.Time { return time.UnixMilli(int64(ms)).UTC() }

func (r *orderRow) order() Order {
	return Order{ID: r.ID, Account: r.Account, External: r.External, Status: r.Status, Version: r.Version, Created: moment(r.Created),
		Failure: r.Failure, Print: printed(r.Store, r.Fleet, r.Cancel, r.Payment, r.Amount, r.Collection, r.Times)}
}

// printed is what the two stores must agree on besides an order's status, as a
// text that shows what differs.
func printed(store, fleet, cancel, payment, amount, collection string, times [7]number) string {
	return fmt.Sprintf("store %q fleet %s cancel %q payment %q amount %q collection %q times %d",
		store, fleet, cancel, payment, decimal(amount), decimal(collection), times)
}

// decimal writes an amount with two decimals, however it came.
func decimal(text string) string {
	whole, part, _ := strings.Cut(text, ".")
	if text == "" {
		return ""
	}
	return whole + "." + (part + "00")[:2]
}

func printOf(o *delivery.Order) string {
	ms := func(t time.Time) number {
		if t.IsZero() {
			return -1
		}
		return number(t.UnixMilli())
	}
	times := [7]number{ms(o.OrderedAt), ms(o.ReadyAt), -1, -1, -1, -1, ms(o.UpdatedAt())}
	cancel := ""
	for _, c := range o.Changes {
		for place, status := range map[int]delivery.Status{2: delivery.Assigned, 3: delivery.PickedUp, 4: delivery.Delivered} {
			if c.Status == status {
				times[place] = ms(c.At)
			}
		}
		if c.Status.Terminal() {
			times[5] = ms(c.At)
		}
		cancel = string(c.Cancel)
	}
	amount := func(m delivery.Money) string {
		if !m.Set {
			return ""
		}
		return fmt.Sprintf("%d.%02d", m.Minor/100, m.Minor%100)
	}
	return printed(o.ExternalStoreID, o.Fleet.ID.String(), cancel, o.Payment.Type.String(),
		amount(o.OrderAmount), amount(o.Payment.CollectionAmount), times)
}

// query asks ClickHouse and hands do each row.
func query[R any](ctx context.Context, s *Sources, sql string, do func(*R)) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	base, err := url.Parse(s.ClickHouseURL)
	if err != nil {
		return err
	}
	settings := base.Query()
	settings.Set("wait_end_of_query", "1") // an error must not come after rows
	base.RawQuery = settings.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base.String(), strings.NewReader(sql+" FORMAT JSONEachRow"))
	if err != nil {
		return err
	}
	resp, err := s.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 500)) // what it says is all there is to tell
		return fmt.Errorf("ClickHouse answered %d: %s", resp.StatusCode, text)
	}
	rows := json.NewDecoder(bufio.NewReader(resp.Body))
	for {
		var row R
		if err := rows.Decode(&row); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading rows: %w", err)
		}
		do(&row)
	}
}

func (s *Sources) client() *http.Client {
	if s.HTTP != nil {
		return s.HTTP
	}
	return &http.Client{Timeout: queryTime}
}
