//go:build long

package download

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

func TestDownload_OutlivesAKilledClickHouse(t *testing.T) {
	c := testserver.DedicatedClickHouse(t)
	e := newEnvOn(t, c)
	e.insertOrders(many)
	resp := e.as("finance").Send("GET", "/reports/order-ledger.csv"+november, "")
	_, err := io.CopyN(io.Discard, resp.Body, 64<<10)
	must(t, err)
	c.Kill(t)
	_, err = io.Copy(io.Discard, resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the body ended with %v", err)
	}

	resp.Body.Close()
	e.Await("the download is counted as cut", func() bool { return e.ended(resultCut) == 1 })
	c.Start(t)

	// A workbook goes out at its end, so a failure is a status however late it comes.
	conn := e.request("GET /reports/order-ledger.xlsx" + november + " HTTP/1.1")
	e.Await("the query runs", func() bool { return e.queries() == "1" })
	c.Kill(t)
	resp, err = http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	if resp.StatusCode != 503 || resp.Header.Get("Content-Type") != "application/json" || e.ended(resultUnavailable) != 1 {
		t.Errorf("%+v, %v are counted as unavailable", resp, e.ended(resultUnavailable))
	}

	c.Start(t)
	e.ask("GET", "/reports/expected-collections.csv"+november, "finance").Want(200)
}

// The whole way of a stalled client, and of one that goes before anything was sent.
func TestDownload_EndsTheQueryOfAClientThatStallsOrGoes(t *testing.T) {
	e := newEnv(t)
	e.serve(e.Archive, Settings{AtOnce: 1, AtOnceEach: 1, Stall: 5 * time.Second, Longest: time.Minute})
	e.insertOrders(many)
	e.request("GET /reports/order-ledger.csv" + november + " HTTP/1.1")
	e.Await("the download runs", func() bool { return e.queries() == "1" })
	e.ask("GET", "/reports/fleet-statement.csv"+november, "finance2").Want(503)
	e.Await("the download is counted as stalled", func() bool { return e.ended(resultStalled) == 1 })
	e.Await("the query is over", func() bool { return e.queries() == "0" })
	conn := e.request("GET /reports/order-ledger.xlsx" + november + " HTTP/1.1")
	e.Await("the query runs", func() bool { return e.queries() == "1" })
	conn.Close()
	e.Await("the query is over", func() bool { return e.queries() == "0" })
	e.Await("the download is counted as gone", func() bool { return e.ended(resultGone) == 1 })
	e.Await("the place is free", func() bool {
		return e.ask("GET", "/reports/fleet-statement.csv"+november, "finance2").StatusCode == 200
	})
}
