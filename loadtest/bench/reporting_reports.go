package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/loadtest/harness"
)

// controlTotals reads the other four reports and hashes each, besides a query of
// its own.
const controlTotals = "control-totals"

var reportNames = []string{"order-ledger", "expected-collections", "fleet-statement", "exceptions", controlTotals}

// measureReports asks for every report of every scope as JSON over HTTP: once
// cold, then warm; and for its rows in ClickHouse alone.
func (b *bench) measureReports(ctx context.Context) (sheet []harness.Figure, err error) {
	y, err := b.openYear(ctx)
	if err != nil {
		return nil, err
	}
	b.progress("reports: %s", coldMeans)
	scopes := []scope{
		{key: "account_month", title: "an account's month", from: monthFirst, to: monthLast, account: y.account},
		{key: "fleet_month", title: "a fleet's month", from: monthFirst, to: monthLast, fleet: y.fleet},
		{key: "month", title: "the month of all", from: monthFirst, to: monthLast},
		{key: "year", title: "the year of all", from: yearFirst, to: yearLast},
	}
	if b.quick { // the narrowest and the widest
		scopes = []scope{scopes[0], scopes[3]}
	}
	for _, s := range scopes {
		for i, name := range reportNames {
			// A quick run starts the engine again for the first report only.
			f, err := y.measureReport(ctx, name, s, !b.quick || i == 0)
			if err != nil {
				return sheet, fmt.Errorf("%s, %s: %w", name, s.title, err)
			}
			b.progress("%s: %s %s, %s", f.Title, harness.Number(harness.Median(f.Rounds)), f.Unit, f.Note)
			sheet = append(sheet, f)
		}
	}
	return sheet, nil
}

// reportLimit is what is accepted of a warm report, in milliseconds; nil: it is
// not judged.
func reportLimit(name string, s scope) *harness.Limit {
	switch {
	case s.key == "account_month" && name == controlTotals:
		return harness.AtMost(500)
	case s.key == "account_month":
		return harness.AtMost(100)
	case s.key == "year" && name == "fleet-statement":
		return harness.AtMost(2000)
	}
	return nil
}

// measureReport asks for a report and, unless it took long, again and again; then
// ClickHouse alone for its rows, unsorted, which go nowhere.
func (y *year) measureReport(ctx context.Context, name string, s scope, cold bool) (f harness.Figure, err error) {
	const disturbing = 0.3 // processors that other programs may keep busy before the table says so
	f = harness.Figure{Key: "reports." + s.key + "." + name, Title: name + ", " + s.title, Unit: "ms", Limit: reportLimit(name, s)}
	if cold {
		if err := y.restartEngine(ctx, true); err != nil {
			return f, err
		}
	}
	query := fmt.Sprintf("SELECT * FROM delivery.%s(from = '%s', to = '%s', account = '%s', fleet = '%s', store = '') SETTINGS final = 1 FORMAT Null",
		strings.ReplaceAll(name, "-", "_"), s.from, s.to, s.account, s.fleet)
	var first fetched
	var bare []float64
	used, err := harness.During(func() (err error) {
		if first, err = y.fetch(ctx, name, s); err != nil {
			return err
		}
		if first.took < longestRepeated {
			if f.Rounds, err = y.repeat(2, func() (time.Duration, error) {
				again, err := y.fetch(ctx, name, s)
				if err == nil && (again.rows != first.rows || again.bytes != first.bytes) {
					err = fmt.Errorf("it has %d rows in %d bytes, then %d in %d", first.rows, first.bytes, again.rows, again.bytes)
				}
				return again.took, err
			}); err != nil {
				return err
			}
		}
		bare, err = y.repeat(1, func() (time.Duration, error) {
			began := time.Now()
			_, err := y.ask(ctx, query)
			return time.Since(began), err
		})
		return err
	}, harness.Process{Name: "panel", PID: y.panel.PID()}, harness.Process{Name: "engine", PID: y.engine.PID()},
		harness.Process{Name: "redis", PID: y.redis.PID()}, harness.Self("bench"))
	if err != nil {
		return f, err
	}
	f.Note = fmt.Sprintf("bare query %s ms; %s rows, %s kB", harness.Number(harness.Median(bare)), harness.Grouped(first.rows), harness.Number(float64(first.bytes)/1000))
	f.Aside = []harness.Figure{
		{Key: f.Key + ".bare", Title: f.Title + ", bare query", Unit: "ms", Rounds: bare},
		one(f.Key+".rows", f.Title+", rows", "", float64(first.rows), nil),
	}
	if others := used.Others(); others > disturbing {
		f.Note += fmt.Sprintf("; DISTURBED: other programs kept %s cores busy", harness.Number(others))
	}
	if !cold {
		return f, nil
	}
	took := milliseconds(first.took)
	f.Aside = append(f.Aside, one(f.Key+".cold", f.Title+", cold", "ms", took, nil))
	f.Note = fmt.Sprintf("cold %s ms, %s", harness.Number(took), f.Note)
	if len(f.Rounds) == 0 {
		f.Rounds, f.Note = []float64{took}, "this is "+f.Note
	}
	return f, nil
}

// longestRepeated is after how long nothing is asked once more: the state of the
// caches does not matter then.
const longestRepeated = 10 * time.Second

// repeat asks five times, or until longestRepeated is over; a quick run asks as
// often as said. It returns milliseconds.
func (y *year) repeat(quick int, ask func() (time.Duration, error)) (took []float64, err error) {
	times := 5
	if y.bench.quick {
		times = quick
	}
	for began := time.Now(); len(took) == 0 || len(took) < times && time.Since(began) < longestRepeated; {
		each, err := ask()
		if err != nil {
			return nil, err
		}
		took = append(took, milliseconds(each))
	}
	return took, nil
}

// restartEngine starts the engine again, with a cold page cache if that is wanted
// and can be had, and returns when the panel has found it.
func (y *year) restartEngine(ctx context.Context, cold bool) error {
	y.engine.Stop()
	if cold {
		if err := dropPages(y.tables()); err != nil {
			return fmt.Errorf("make the page cache forget the tables: %w", err)
		}
	}
	if err := y.engine.Start(ctx); err != nil {
		return err
	}
	return y.panel.AwaitReady(ctx)
}

// fetched is a report that has arrived whole.
type fetched struct {
	took        time.Duration // from the request to the last byte
	rows, bytes int64
}

// fetch downloads a report as JSON and reads its end, which says how many rows
// there were.
func (y *year) fetch(ctx context.Context, name string, s scope) (f fetched, err error) {
	began := time.Now()
	resp, err := y.open(ctx, name+".json", s)
	if err != nil {
		return f, err
	}
	defer resp.Body.Close()
	look := &lookout{mark: []byte(`"ties":"no"`)}
	if f.bytes, err = io.Copy(look, resp.Body); err != nil {
		return f, fmt.Errorf("read %s: %w", name, err)
	}
	f.took = time.Since(began)
	_, end, found := bytes.Cut(look.tail, []byte("\"totals\":"))
	var totals struct{ Rows int64 }
	if err := json.Unmarshal(bytes.TrimSuffix(bytes.TrimSpace(end), []byte("}}")), &totals); !found || err != nil {
		return f, fmt.Errorf("%s ends with %.100q", name, look.tail)
	}
	f.rows = totals.Rows
	switch {
	case f.rows == 0 && name != "exceptions":
		return f, errors.New("it has no rows")
	case look.met:
		return f, errors.New("it does not tie")
	}
	return f, nil
}

// lookout keeps the end of what is written, and looks out for a text.
type lookout struct {
	mark []byte
	tail []byte
	met  bool
}

const tailLength = 2000

func (l *lookout) Write(p []byte) (int, error) {
	// The end of what came before goes along, so that no mark is cut in two.
	l.tail = append(l.tail, p...)
	l.met = l.met || bytes.Contains(l.tail, l.mark)
	l.tail = append(l.tail[:0], l.tail[max(0, len(l.tail)-tailLength):]...)
	return len(p), nil
}

// downloadFigures are those of one download: what reporting took at its peak, at
// most 200 MB for any length, and the time.
func downloadFigures(key, title string, peak uint64, took time.Duration, rows int64, note string) []harness.Figure {
	seconds := one(key+".seconds", "  seconds", "s", took.Seconds(), nil)
	seconds.Note = fmt.Sprintf("%s rows/s, %s", harness.Number(float64(rows)/took.Seconds()), note)
	return []harness.Figure{
		one(key+".memory", title+": peak memory of reporting", "MB", megabytes(peak), harness.Always(harness.AtMost(200))),
		seconds,
	}
}

// megabytes of resident memory.
func megabytes(bytes uint64) float64 { return float64(bytes) / 1e6 }

// measureDownloads downloads the order ledger of the whole year over HTTP and
// writes it to a file, and a fifth of it as a workbook. Every process is started
// again before, so that its peak is that of one download.
func (b *bench) measureDownloads(ctx context.Context) (sheet []harness.Figure, err error) {
	y, err := b.openYear(ctx)
	if err != nil {
		return nil, err
	}
	whole, fifth := scope{from: yearFirst, to: yearLast}, scope{from: yearFirst, to: "2026-03-14"} // 73 days
	truth, err := y.truth(ctx, whole)
	if err != nil {
		return nil, err
	}
	sent, sheet, err := y.downloadCSV(ctx, whole)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(y.dir, "order-ledger.csv")
	found, err := y.writeReport(ctx, "download.file", "CSV as a file", path, whole, truth[0])
	sheet = append(sheet, found...)
	if err != nil {
		return sheet, err
	}
	sums, digest, err := sumFile(path)
	if err != nil {
		return sheet, err
	}
	differs := differences(append(sums, sent.lines-1), append(truth, truth[0]))
	if !bytes.Equal(digest, sent.digest) {
		differs++
	}
	sheet = append(sheet, one("download.differs", "  rows and sums that are not ClickHouse's, in either", "", float64(differs), none()))
	if err := os.Remove(path); err != nil {
		return sheet, err
	}
	if truth, err = y.truth(ctx, fifth); err != nil {
		return sheet, err
	}
	found, err = y.writeReport(ctx, "download.xlsx", harness.Grouped(truth[0])+" rows as XLSX", filepath.Join(y.dir, "order-ledger.xlsx"), fifth, truth[0])
	return append(sheet, found...), err
}

// truth is the rows of an order ledger, and the sums of their amounts,
// collections and expected collections in kuruş: of the table, not of the view.
func (y *year) truth(ctx context.Context, s scope) ([]int64, error) {
	return y.askNumbers(ctx, 4, fmt.Sprintf(`SELECT count(), toInt64(sum(order_amount) * 100),
		toInt64(sum(collection_amount) * 100), toInt64(sumIf(collection_amount, status = 'Delivered' AND payment_type IN ('Cash', 'Card')) * 100)
		FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s'`, s.from, s.to))
}

// download is what came over HTTP.
type download struct {
	lines  int64
	digest []byte
}

// Write counts lines.
func (d *download) Write(p []byte) (int, error) {
	d.lines += int64(bytes.Count(p, []byte{'\n'}))
	return len(p), nil
}

// downloadCSV downloads the ledger from a panel and an engine that have done
// nothing before.
func (y *year) downloadCSV(ctx context.Context, s scope) (d download, sheet []harness.Figure, err error) {
	y.panel.Stop()
	y.engine.Stop()
	if err := errors.Join(y.engine.Start(ctx), y.panel.Start(ctx)); err != nil {
		return d, nil, err
	}
	before, err := harness.MemoryOf(y.engine.PID())
	if err != nil {
		return d, nil, err
	}
	began := time.Now()
	resp, err := y.open(ctx, "order-ledger.csv", s)
	if err != nil {
		return d, nil, err
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	_, err = body.Peek(1) // an empty body is an error
	first := time.Since(began)
	hash, length := sha256.New(), int64(0)
	if err == nil {
		length, err = io.Copy(io.MultiWriter(hash, &d), body)
	}
	took := time.Since(began)
	if err != nil {
		return d, nil, fmt.Errorf("download the ledger: %w", errors.Join(err, y.panel.Check()))
	}
	d.digest = hash.Sum(nil)
	panel, err := harness.MemoryOf(y.panel.PID())
	if err != nil {
		return d, nil, err
	}
	engine, err := harness.MemoryOf(y.engine.PID())
	if err != nil {
		return d, nil, err
	}
	y.bench.progress("download over HTTP: %s lines in %.1f s, peak of reporting %.0f MB", harness.Grouped(d.lines), took.Seconds(), megabytes(panel.Peak))
	rows := d.lines - 1 // the header is one
	peak := one("download.http.engine", "  peak memory of the engine", "MB", megabytes(engine.Peak), nil)
	peak.Note = "before " + harness.Number(megabytes(before.Now)) + " MB"
	return d, append(downloadFigures("download.http", harness.Grouped(rows)+" rows as CSV over HTTP", panel.Peak, took, rows,
		fmt.Sprintf("%s MB/s, first byte after %s ms", harness.Number(float64(length)/1e6/took.Seconds()), harness.Number(milliseconds(first)))), peak), nil
}

// writeReport lets `reporting report` write the order ledger to a file.
func (y *year) writeReport(ctx context.Context, key, title, path string, s scope, rows int64) ([]harness.Figure, error) {
	p := y.program("report", "", "", nil, "report", "order-ledger", "--from", s.from, "--to", s.to, "-o", path)
	began := time.Now()
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	stop := harness.Watch(ctx, 10*time.Millisecond, harness.Process{Name: "report", PID: p.PID()})
	err := p.Wait(ctx)
	watched, took := stop(), time.Since(began)
	if err != nil {
		return nil, err
	}
	if len(watched) == 0 {
		return nil, errors.New("the report's process was never seen")
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	y.bench.progress("%s: %.1f s, peak of reporting %.0f MB", title, took.Seconds(), megabytes(watched[0].Peak))
	return downloadFigures(key, title, watched[0].Peak, took, rows, harness.Number(float64(file.Size())/1e6)+" MB"), nil
}

// sumFile is sumLedger of a file, and its SHA-256.
func sumFile(path string) (sums []int64, digest []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	hash := sha256.New()
	if sums, err = sumLedger(io.TeeReader(file, hash)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return sums, hash.Sum(nil), nil
}

// sumLedger reads an order ledger as spreadsheets get it (semicolons, decimal
// commas, a byte order mark) and returns what truth does.
func sumLedger(in io.Reader) ([]int64, error) {
	lines := csv.NewReader(in)
	lines.Comma, lines.ReuseRecord = ';', true
	header, err := lines.Read()
	if err != nil {
		return nil, err
	}
	var columns []int
	for _, name := range []string{"orderAmount", "collectionAmount", "expectedCollection"} {
		at := slices.Index(header, name)
		if at < 0 {
			return nil, fmt.Errorf("there is no column %s", name)
		}
		columns = append(columns, at)
	}
	sums := make([]int64, 4)
	for {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return sums, nil
		}
		if err != nil {
			return nil, err
		}
		sums[0]++
		for i, at := range columns {
			kurus, err := parseAmount(line[at])
			if err != nil {
				return nil, fmt.Errorf("row %d: %w", sums[0], err)
			}
			sums[1+i] += kurus
		}
	}
}

var amountPattern = regexp.MustCompile(`^\d+,\d\d$`)

// parseAmount reads "1217,69"; an empty text is no amount.
func parseAmount(text string) (kurus int64, err error) {
	if text == "" {
		return 0, nil
	}
	if !amountPattern.MatchString(text) {
		return 0, fmt.Errorf("%q is no amount with two decimals", text)
	}
	return strconv.ParseInt(strings.Replace(text, ",", "", 1), 10, 64)
}
