package download

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
)

// many is enough for a download to be in progress until its client has read on: its
// CSV is far beyond what sockets hold.
const many = 300_000

// A report that breaks off must never look whole, however it is encoded; and a
// client that goes takes its query along.
func TestDownload_ThatIsCutIsSeenToBeCut(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(many)
	begin := func(file string, headers ...string) *http.Response {
		resp := e.as("finance").Send("GET", "/reports/"+file+november, "", headers...)
		if resp.StatusCode != 200 || resp.ContentLength != -1 {
			t.Fatalf("%d, length %d", resp.StatusCode, resp.ContentLength)
		}

		_, err := io.CopyN(io.Discard, resp.Body, 64<<10)
		must(t, err)
		e.Await("its query runs alone", func() bool { return e.queries() == "1" }) // ClickHouse may still end the one before
		return resp
	}

	for i, c := range []struct{ file, encoding string }{{"order-ledger.csv", "identity"}, {"order-ledger.json", "gzip"}} {
		resp := begin(c.file, "Accept-Encoding: "+c.encoding)
		e.ClickHouse.Exec(t, "KILL QUERY WHERE "+e.ofOurs())
		_, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s, %s: the body ended with %v", c.file, c.encoding, err)
		}
		e.Await("the download is counted as cut", func() bool { return e.ended(resultCut) == float64(i+1) })
	}

	begin("order-ledger.csv").Body.Close()
	e.Await("the query is over", func() bool { return e.queries() == "0" })
	e.Await("the download is counted as gone", func() bool { return e.ended(resultGone) == 1 })
}

func TestDownload_SaysThatClickHouseIsUnavailable(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	unavailable, err := archive.Open(archive.Settings{URL: "http://127.0.0.1:1", Database: e.Database})
	must(t, err)
	t.Cleanup(func() { _ = unavailable.Close() })
	e.serve(unavailable, e.downloads.settings)
	for _, file := range []string{"order-ledger.csv", "order-ledger.xlsx", "order-ledger.json", "control-totals.csv"} {
		for method, part := range map[string]string{"GET": "SERVICE_UNAVAILABLE", "HEAD": ""} {
			e.ask(method, "/reports/"+file+november, "finance", "Accept-Encoding: gzip").Want(503, part).Lacks("127.0.0.1").
				Carries(map[string]string{"Retry-After": "2", "Content-Type": "application/json", "Content-Encoding": "", "Content-Disposition": ""})
		}
	}

	if n := e.ended(resultUnavailable); n != 4 {
		t.Errorf("%v are counted as unavailable", n)
	}
}

func TestDownload_MayNotTakeForEver(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.downloads.settings.Longest = time.Nanosecond
	e.ask("GET", "/reports/order-ledger.xlsx"+november, "finance").Want(503, "the report takes too long; ask for a shorter period").
		Carries(map[string]string{"Retry-After": "5"})
	if n := e.ended(resultTooLong); n != 1 {
		t.Errorf("%v took too long", n)
	}
}

func TestDownload_RunsFewAtOnce(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.serve(e.Archive, Settings{AtOnce: 3, AtOnceEach: 2, Stall: testserver.Timeout, Longest: testserver.Timeout})
	const file = "/reports/fleet-statement.csv"
	var leave []func()
	for _, who := range []string{"finance", "finance", "finance2"} { // as downloads in progress have
		l, err := e.downloads.slots.take(who)
		must(t, err)
		leave = append(leave, l)
	}

	e.ask("GET", file, "finance").Want(429, "RATE_LIMITED").Carries(map[string]string{"Retry-After": "5"})
	e.ask("GET", file, "finance2").Want(503, "SERVICE_UNAVAILABLE").Carries(map[string]string{"Retry-After": "5"})
	e.ask("HEAD", file, "finance2").Want(200)
	leave[0]()
	leave[0]() // once is enough
	e.ask("GET", file, "finance2").Want(200)
	leave[1]()
	leave[2]()
	e.Await("all slots are free", func() bool {
		e.downloads.slots.mu.Lock()
		defer e.downloads.slots.mu.Unlock()
		return e.downloads.slots.taken == 0 && len(e.downloads.slots.by) == 0
	})
}

// To HTTP/1.0, in which the end of a body and a cut connection look alike, a
// report goes with its length.
func TestDownload_TellsOldClientsTheLength(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for _, n := range []int{10, 5000} { // less and more than is held back
		e.insertOrders(n)
		want := e.ask("GET", "/reports/order-ledger.csv"+november, "finance").Want(200).Text
		resp, err := http.ReadResponse(bufio.NewReader(e.request("GET /reports/order-ledger.csv"+november+" HTTP/1.0")), nil)
		must(t, err)
		body, err := io.ReadAll(resp.Body)
		must(t, err)
		if resp.Header.Get("Content-Length") != strconv.Itoa(len(want)) || string(body) != want || resp.Header.Get("Content-Type") == "" || n > 10 && len(want) <= holdBack {
			t.Errorf("%d orders: %d bytes, length %s, want %d", n, len(body), resp.Header.Get("Content-Length"), len(want))
		}
	}

	e.awaitWhole(4)
}

// A browser is led to the sign-in page and from there to the file.
func TestDownload_ComesToABrowserThatSignsIn(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.insertOrders(10)
	link := "/reports/order-ledger.csv" + november
	to := e.client.Get(link, "Accept: text/html,*/*;q=0.8").Want(303).Header.Get("Location")
	form := e.client.Page(to).Form("/login", "", "")
	form.Set("user", "ayse")
	form.Set("password", authenv.Password)
	e.client.Post("/login", form).Leads(link)
	file := e.client.Page(link).Text
	if strings.Count(file, "\n") != 11 {
		t.Errorf("%.200s", file)
	}

	// Empty filters mean all, as forms send them.
	if again := e.client.Page(link + "&account=&fleet=&store="); again.Text != file {
		t.Errorf("the form's file is another one: %s", again.Text)
	}
}
