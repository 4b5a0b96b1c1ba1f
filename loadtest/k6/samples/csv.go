package samples

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is one HTTP request.
type Request struct {
	Endpoint       string // such as "POST /orders"
	Account        string // label within the script; empty for a script without vendors
	Step           string // of a ramp, such as "400/s"; else empty
	Status         int    // 0: there was no answer
	Failed         bool   // there was no answer, or a 5xx that the script had not asked for
	Sent, Answered time.Time
}

// Took is from the first byte sent to the last byte received.
func (r *Request) Took() time.Duration { return r.Answered.Sub(r.Sent) }

// Order is an order that was accepted.
type Order struct {
	ID      string
	Account string
	End     string // the status that it must be in at last
}

// Run is what one script did.
type Run struct {
	Requests []Request
	Orders   []Order
	Stores   map[string]int // registered ones by account
	Dropped  []time.Time    // iterations that k6 was too busy to begin
}

// ReadCSV reads the samples of `k6 run --out csv=…` with unix_micro times.
func ReadCSV(r io.Reader) (*Run, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("k6's samples: %w", err)
	}
	columns, err := columnsOf(head)
	if err != nil {
		return nil, err
	}
	run := &Run{Stores: map[string]int{}}
	for {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			return run, nil
		}
		if err == nil {
			err = run.add(columns, row)
		}
		if err != nil {
			return nil, fmt.Errorf("k6's samples: %w", err)
		}
	}
}

// columns are where in a row the things stand that matter here.
type columns struct{ metric, time, value, name, status, expected, tags, metadata int }

func columnsOf(head []string) (c columns, err error) {
	for name, at := range map[string]*int{
		"metric_name": &c.metric, "timestamp": &c.time, "metric_value": &c.value,
		"name": &c.name, "status": &c.status, "expected_response": &c.expected,
		"extra_tags": &c.tags, "metadata": &c.metadata,
	} {
		if *at = slices.Index(head, name); *at < 0 {
			return c, fmt.Errorf("k6's samples: there is no column %s among %v", name, head)
		}
	}
	return c, nil
}

func (run *Run) add(c columns, row []string) error {
	switch row[c.metric] {
	case "http_req_duration", "orders_accepted", "stores_registered", "dropped_iterations":
	default:
		return nil
	}
	micros, err := strconv.ParseInt(row[c.time], 10, 64)
	if err != nil {
		return fmt.Errorf("time of %s: %w", row[c.metric], err)
	}
	value, err := strconv.ParseFloat(row[c.value], 64)
	if err != nil {
		return fmt.Errorf("value of %s: %w", row[c.metric], err)
	}
	tags, metadata := pairs(row[c.tags]), pairs(row[c.metadata])
	switch at := time.UnixMicro(micros); row[c.metric] {
	case "http_req_duration":
		status, err := strconv.Atoi(row[c.status])
		if err != nil {
			return fmt.Errorf("status of %s: %w", row[c.name], err)
		}
		run.Requests = append(run.Requests, Request{
			Endpoint: strings.Clone(row[c.name]), Account: tags["account"], Step: tags["step"],
			Status: status, Failed: row[c.expected] == "false",
			Sent: at.Add(-time.Duration(value * float64(time.Millisecond))), Answered: at,
		})
	case "orders_accepted":
		if metadata["order"] == "" || metadata["end"] == "" {
			return fmt.Errorf("an accepted order without id or end: %q", row)
		}
		run.Orders = append(run.Orders, Order{ID: metadata["order"], Account: tags["account"], End: metadata["end"]})
	case "stores_registered":
		run.Stores[tags["account"]]++
	case "dropped_iterations":
		for range int(value) {
			run.Dropped = append(run.Dropped, at)
		}
	}
	return nil
}

// pairs reads name=value&name=value, as k6 writes tags: nothing is escaped.
func pairs(text string) map[string]string {
	if text == "" {
		return nil
	}
	values := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = strings.Clone(value)
	}
	return values
}
