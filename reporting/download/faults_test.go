package download

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// many is enough for a download to be under way for a while: its CSV is far
// beyond what sockets hold.
const many = 300_000

// A report that breaks off must never look whole, however it is encoded.
func TestDownload_ThatFailsInTheMiddleIsSeenToBeCut(t *testing.T) {
	nothingLeft := watchTemporaryFiles(t)
	e := testserver.DedicatedClickHouse(t)
	s := newSceneOn(t, e)
	s.insertOrders(many)
	for i, c := range []struct{ file, encoding string }{
		{"order-ledger.csv", "identity"}, {"order-ledger.json", "identity"}, {"order-ledger.csv", "gzip"},
	} {
		resp := s.begin("GET", "/reports/"+c.file+november, "erp", "Accept-Encoding: "+c.encoding)
		if resp.StatusCode != 200 || resp.ContentLength != -1 {
			t.Fatalf("%d, length %d", resp.StatusCode, resp.ContentLength)
		}
		_, err := io.CopyN(io.Discard, resp.Body, 64<<10)
		must(t, err)
		e.Kill(t)
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s, %s: the body ended with %v", c.file, c.encoding, err)
		}
		s.await("the download is counted as cut", func() bool { return s.ended(resultCut) == float64(i+1) })
		e.Start(t)
	}
	s.ask("GET", "/reports/expected-collections.csv"+november, "erp").want(t, 200, "")
	nothingLeft()
}

func TestDownload_SaysThatClickHouseIsAway(t *testing.T) {
	nothingLeft := watchTemporaryFiles(t)
	e := testserver.DedicatedClickHouse(t)
	s := newSceneOn(t, e)
	s.insertOrders(10)
	e.Kill(t)
	for _, file := range []string{"order-ledger.csv", "order-ledger.xlsx", "order-ledger.json", "control-totals.csv"} {
		for _, method := range []string{"GET", "HEAD"} {
			a := s.ask(method, "/reports/"+file+november, "erp", "Accept-Encoding: gzip").want(t, 503, "")
			a.wantHeader(t, "Retry-After", "2").wantHeader(t, "Content-Type", "application/json")
			a.wantHeader(t, "Content-Encoding", "").wantHeader(t, "Content-Disposition", "")
			if method == "GET" && (!strings.Contains(a.text, "SERVICE_UNAVAILABLE") || strings.Contains(a.text, "127.0.0.1")) {
				t.Errorf("%s", a.text)
			}
		}
	}
	if n := s.ended(resultUnavailable); n != 4 {
		t.Errorf("%v are counted as unavailable", n)
	}
	e.Start(t)
	s.ask("GET", "/reports/order-ledger.csv"+november, "erp").want(t, 200, "A-9")
	nothingLeft()
}

// A workbook goes out at its end, so a failure is a status however late it comes.
func TestDownload_OfAWorkbookThatFailsIsAnAnswer(t *testing.T) {
	nothingLeft := watchTemporaryFiles(t)
	e := testserver.DedicatedClickHouse(t)
	s := newSceneOn(t, e)
	s.insertOrders(many)
	answered := make(chan *http.Response)
	conn := s.request("GET /reports/order-ledger.xlsx" + november + " HTTP/1.1")
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	s.await("the query runs", func() bool { return s.queries() == "1" })
	time.Sleep(200 * time.Millisecond) // rows have gone into the sheet by now
	e.Kill(t)
	if resp := <-answered; resp == nil || resp.StatusCode != 503 || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", resp)
	}
	if n := s.ended(resultUnavailable); n != 1 {
		t.Errorf("%v are counted as unavailable", n)
	}
	e.Start(t)
	nothingLeft()
}

func TestDownload_TakesTheQueryAlongWhenTheClientGoes(t *testing.T) {
	nothingLeft := watchTemporaryFiles(t)
	s := newScene(t)
	s.insertOrders(many)
	for i, file := range []string{"order-ledger.csv", "order-ledger.json"} {
		resp := s.begin("GET", "/reports/"+file+november, "erp")
		_, err := io.CopyN(io.Discard, resp.Body, 64<<10)
		must(t, err)
		if n := s.queries(); n != "1" {
			t.Errorf("%s queries run", n)
		}
		resp.Body.Close()
		s.await("the query is over", func() bool { return s.queries() == "0" })
		s.await("the download is counted as gone", func() bool { return s.ended(resultGone) == float64(i+1) })
	}
	// And while nothing has been sent yet.
	conn := s.request("GET /reports/order-ledger.xlsx" + november + " HTTP/1.1")
	s.await("the query runs", func() bool { return s.queries() == "1" })
	conn.Close()
	s.await("the query is over", func() bool { return s.queries() == "0" })
	s.await("the download is counted as gone", func() bool { return s.ended(resultGone) == 3 })
	nothingLeft()
}

// request sends a request and returns the connection, of which nothing has been
// read.
func (s *scene) request(line string) net.Conn {
	s.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	must(s, err)
	s.Cleanup(func() { conn.Close() })
	_, err = fmt.Fprintf(conn, "%s\r\nHost: panel\r\nAuthorization: Bearer %s\r\n\r\n", line, s.tokens["erp"])
	must(s, err)
	return conn
}

func TestDownload_LetsAStalledClientGo(t *testing.T) {
	s := newScene(t, func(s *Settings) { s.Stall, s.AtOnce, s.AtOnceEach = time.Second, 1, 1 })
	s.insertOrders(many)
	s.request("GET /reports/order-ledger.csv" + november + " HTTP/1.1")
	s.await("the download runs", func() bool { return s.queries() == "1" })
	s.ask("GET", "/reports/fleet-statement.csv"+november, "bi").want(t, 503, "")
	s.await("the download is counted as stalled", func() bool { return s.ended(resultStalled) == 1 })
	s.await("the query is over", func() bool { return s.queries() == "0" })
	s.ask("GET", "/reports/fleet-statement.csv"+november, "bi").want(t, 200, "")
}

// Somebody slow, but not stalled, gets the whole report; and the connection
// serves the next request however long after.
func TestDownload_WaitsForASlowClient(t *testing.T) {
	s := newScene(t, func(s *Settings) { s.Stall = time.Second })
	s.insertOrders(60_000)
	conn := s.request("GET /reports/order-ledger.csv" + november + "&plain=1 HTTP/1.1")
	for turn := range 2 {
		reader := bufio.NewReaderSize(conn, 4096)
		resp, err := http.ReadResponse(reader, nil)
		must(t, err)
		rows, piece := -1, make([]byte, 512<<10)
		for {
			n, err := io.ReadFull(resp.Body, piece)
			rows += strings.Count(string(piece[:n]), "\n")
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				break
			}
			must(t, err)
			time.Sleep(100 * time.Millisecond)
		}
		if rows != 60_000 {
			t.Fatalf("turn %d: %d rows", turn, rows)
		}
		if turn == 0 {
			time.Sleep(1500 * time.Millisecond) // longer than the last write had time
			_, err = fmt.Fprintf(conn, "GET /reports/order-ledger.csv%s&plain=1 HTTP/1.1\r\nHost: panel\r\nAuthorization: Bearer %s\r\n\r\n", november, s.tokens["erp"])
			must(t, err)
		}
	}
	if n := s.ended(resultWhole); n != 2 {
		t.Errorf("%v whole", n)
	}
}

func TestDownload_MayNotTakeForEver(t *testing.T) {
	s := newScene(t, func(s *Settings) { s.Stall, s.Longest = time.Second, time.Second })
	s.insertOrders(many)
	a := s.ask("GET", "/reports/order-ledger.xlsx"+november, "erp").want(t, 503, "the report takes too long; ask for a shorter period")
	a.wantHeader(t, "Retry-After", "5")
	s.await("the query is over", func() bool { return s.queries() == "0" })
	if n := s.ended(resultTooLong); n != 1 {
		t.Errorf("%v took too long", n)
	}
	s.ask("GET", "/reports/order-ledger.csv?from=2026-12-01&to=2026-12-01", "erp").want(t, 200, "")
}

func TestDownload_RunsFewAtOnce(t *testing.T) {
	s := newScene(t, func(s *Settings) { s.AtOnce, s.AtOnceEach = 3, 2 })
	s.insertOrders(many)
	held := func(token string) *http.Response {
		resp := s.begin("GET", "/reports/order-ledger.csv"+november, token)
		if resp.StatusCode != 200 {
			t.Fatalf("%d", resp.StatusCode)
		}
		return resp
	}
	first, second := held("erp"), held("erp")
	s.ask("GET", "/reports/fleet-statement.csv", "erp").want(t, 429, "RATE_LIMITED").wantHeader(t, "Retry-After", "5")
	third := held("bi")
	s.ask("GET", "/reports/fleet-statement.csv", "bi").want(t, 503, "SERVICE_UNAVAILABLE").wantHeader(t, "Retry-After", "5")
	s.ask("HEAD", "/reports/fleet-statement.csv", "bi").want(t, 200, "")
	first.Body.Close()
	s.await("the slot is free", func() bool {
		resp := s.begin("GET", "/reports/fleet-statement.csv", "bi")
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	second.Body.Close()
	third.Body.Close()
	s.await("all slots are free", func() bool {
		s.downloads.slots.mu.Lock()
		defer s.downloads.slots.mu.Unlock()
		return s.downloads.slots.taken == 0 && len(s.downloads.slots.by) == 0
	})
}

// To HTTP/1.0, in which the end of a body and a cut connection look alike, a
// report goes with its length.
func TestDownload_TellsOldClientsTheLength(t *testing.T) {
	nothingLeft := watchTemporaryFiles(t)
	s := newScene(t)
	for _, n := range []int{10, 20_000} {
		s.engine.Exec(t, "TRUNCATE TABLE "+s.database+".orders")
		s.insertOrders(n)
		want := s.ask("GET", "/reports/order-ledger.csv"+november, "erp").want(t, 200, "").text
		resp, err := http.ReadResponse(bufio.NewReader(s.request("GET /reports/order-ledger.csv"+november+" HTTP/1.0")), nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.Header.Get("Content-Length") != strconv.Itoa(len(want)) || string(body) != want || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%d orders: %d bytes, length %s, want %d", n, len(body), resp.Header.Get("Content-Length"), len(want))
		}
	}
	if n := s.ended(resultWhole); n != 4 {
		t.Errorf("%v whole", n)
	}
	nothingLeft()
}
