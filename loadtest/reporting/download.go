package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/harness"
)

const (
	megabyte = 1e6
	// mostMemory is what reporting may take for a download of any length.
	mostMemory = 200
)

// measureDownloads downloads the order ledger of the whole year over HTTP and
// writes it to a file, and a fifth of it as a workbook. Every process is started
// anew before, so that its peak is that of one download.
func (b *bench) measureDownloads(ctx context.Context) (sheet []harness.Figure, err error) {
	y, err := b.openYear(ctx)
	if err != nil {
		return nil, err
	}
	whole := &scope{from: yearFirst, to: yearLast}
	truth, err := y.truth(ctx, whole)
	if err != nil {
		return nil, err
	}
	sent, found, err := y.downloadCSV(ctx, whole)
	if err != nil {
		return nil, err
	}
	sheet = append(sheet, found...)
	path := filepath.Join(y.dir, "order-ledger.csv")
	written, found, err := y.writeReport(ctx, "download.file", "CSV as a file", path, whole)
	if err != nil {
		return sheet, err
	}
	sheet = append(sheet, found...)
	differs, err := compareLedgers(path, sent, truth)
	if err != nil {
		return sheet, err
	}
	sheet = append(sheet,
		harness.Figure{Key: "download.file.seconds", Title: "  seconds", Unit: "s", Rounds: []float64{written.Seconds()},
			Note: harness.Number(float64(truth.rows)/written.Seconds()) + " rows/s"},
		harness.Figure{Key: "download.differs", Title: "  rows and sums that are not ClickHouse's, in either", Rounds: []float64{float64(differs)}, Limit: harness.Always(harness.AtMost(0))})
	if err := os.Remove(path); err != nil {
		return sheet, err
	}
	found, err = y.writeWorkbook(ctx)
	return append(sheet, found...), err
}

// sums are the rows and totals of an order ledger, in kuruş.
type sums struct{ rows, amount, collection, expected int64 }

// truth asks the table, not the view.
func (y *year) truth(ctx context.Context, s *scope) (t sums, err error) {
	err = y.askNumbers(ctx, []*int64{&t.rows, &t.amount, &t.collection, &t.expected}, fmt.Sprintf(`SELECT count(), toInt64(sum(order_amount) * 100),
		toInt64(sum(collection_amount) * 100), toInt64(sumIf(collection_amount, status = 'Delivered' AND payment_type IN ('Cash', 'Card')) * 100)
		FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s'`, s.from, s.to))
	return t, err
}

// received is what came over HTTP.
type received struct {
	bytes, lines int64
	digest       hash.Hash
}

func (r *received) Write(p []byte) (int, error) {
	r.bytes += int64(len(p))
	r.lines += int64(bytes.Count(p, []byte{'\n'}))
	return r.digest.Write(p)
}

// downloadCSV downloads the ledger from a panel and an engine that have done
// nothing before.
func (y *year) downloadCSV(ctx context.Context, s *scope) (*received, []harness.Figure, error) {
	if err := y.panel.Stop(); err != nil {
		return nil, nil, err
	}
	if err := y.rig.restart(ctx, false); err != nil {
		return nil, nil, err
	}
	if err := y.panel.Start(ctx); err != nil {
		return nil, nil, err
	}
	before, err := memoryOf(y.engine.PID())
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	resp, err := y.open(ctx, "order-ledger.csv", s)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	to := &received{digest: sha256.New()}
	first := firstByte{began: began, to: to}
	if _, err := io.Copy(&first, resp.Body); err != nil {
		return nil, nil, fmt.Errorf("download the ledger: %w", errors.Join(err, y.panel.Check()))
	}
	seconds := time.Since(began).Seconds()
	panel, err := memoryOf(y.panel.PID())
	if err != nil {
		return nil, nil, err
	}
	engine, err := memoryOf(y.engine.PID())
	if err != nil {
		return nil, nil, err
	}
	y.bench.progress("download over HTTP: %s lines in %.1f s, peak of reporting %.0f MB", harness.Grouped(to.lines), seconds, float64(panel.peak)/megabyte)
	rows := float64(to.lines - 1) // the header is one
	return to, []harness.Figure{
		{Key: "download.http.memory", Title: fmt.Sprintf("%s rows as CSV over HTTP: peak memory of reporting", harness.Grouped(to.lines-1)), Unit: "MB",
			Rounds: []float64{float64(panel.peak) / megabyte}, Limit: harness.Always(harness.AtMost(mostMemory))},
		{Key: "download.http.engine", Title: "  peak memory of the engine", Unit: "MB", Rounds: []float64{float64(engine.peak) / megabyte},
			Note: "before " + harness.Number(float64(before.now)/megabyte) + " MB"},
		{Key: "download.http.seconds", Title: "  seconds", Unit: "s", Rounds: []float64{seconds},
			Note: fmt.Sprintf("%s rows/s, %s MB/s, first byte after %s ms", harness.Number(rows/seconds), harness.Number(float64(to.bytes)/megabyte/seconds), harness.Number(milliseconds(first.after)))},
	}, nil
}

// firstByte notes when the first byte came.
type firstByte struct {
	began time.Time
	after time.Duration
	to    io.Writer
}

func (f *firstByte) Write(p []byte) (int, error) {
	if f.after == 0 {
		f.after = time.Since(f.began)
	}
	return f.to.Write(p)
}

// writeReport lets `reporting report` write the order ledger to a file.
func (y *year) writeReport(ctx context.Context, key, title, path string, s *scope) (took time.Duration, sheet []harness.Figure, err error) {
	p := y.program("report", nil, "report", "order-ledger", "--from", s.from, "--to", s.to, "-o", path)
	began := time.Now()
	if err := p.Start(ctx); err != nil {
		return 0, nil, err
	}
	stop := watchMemory(ctx, p.PID())
	err = p.Await(ctx)
	peak := float64(stop()) / megabyte
	took = time.Since(began)
	if err != nil {
		return 0, nil, err
	}
	y.bench.progress("%s: %.1f s, peak of reporting %.0f MB", title, took.Seconds(), peak)
	return took, []harness.Figure{{Key: key + ".memory", Title: title + ": peak memory of reporting", Unit: "MB", Rounds: []float64{peak}, Limit: harness.Always(harness.AtMost(mostMemory))}}, nil
}

// writeWorkbook writes the first fifth of the year as XLSX.
func (y *year) writeWorkbook(ctx context.Context) ([]harness.Figure, error) {
	s := &scope{from: yearFirst, to: "2026-03-14"} // the first 73 days
	truth, err := y.truth(ctx, s)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(y.dir, "order-ledger.xlsx")
	took, sheet, err := y.writeReport(ctx, "download.xlsx", harness.Grouped(truth.rows)+" rows as XLSX", path, s)
	if err != nil {
		return nil, err
	}
	file, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	return append(sheet, harness.Figure{Key: "download.xlsx.seconds", Title: "  seconds", Unit: "s", Rounds: []float64{took.Seconds()},
		Note: fmt.Sprintf("%s rows/s, %s MB", harness.Number(float64(truth.rows)/took.Seconds()), harness.Number(float64(file.Size())/megabyte))}), os.Remove(path)
}

// compareLedgers counts what differs between the file and what was sent over
// HTTP, and between the file's sums and ClickHouse's.
func compareLedgers(path string, sent *received, truth sums) (differs int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	digest := sha256.New()
	found, err := sumLedger(io.TeeReader(file, digest))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if hex.EncodeToString(digest.Sum(nil)) != hex.EncodeToString(sent.digest.Sum(nil)) {
		differs++
	}
	for _, pair := range [][2]int64{{found.rows, truth.rows}, {sent.lines - 1, truth.rows},
		{found.amount, truth.amount}, {found.collection, truth.collection}, {found.expected, truth.expected}} {
		if pair[0] != pair[1] {
			differs++
		}
	}
	return differs, nil
}

// sumLedger reads an order ledger as spreadsheets get it: semicolons, decimal
// commas, a byte order mark.
func sumLedger(in io.Reader) (s sums, err error) {
	lines := csv.NewReader(in)
	lines.Comma, lines.ReuseRecord = ';', true
	header, err := lines.Read()
	if err != nil {
		return s, err
	}
	columns := make([]int, 0, 3)
	for _, name := range []string{"orderAmount", "collectionAmount", "expectedCollection"} {
		at := slices.Index(header, name)
		if at < 0 {
			return s, fmt.Errorf("there is no column %s", name)
		}
		columns = append(columns, at)
	}
	for {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		s.rows++
		for i, into := range []*int64{&s.amount, &s.collection, &s.expected} {
			kurus, err := parseAmount(line[columns[i]])
			if err != nil {
				return s, fmt.Errorf("row %d: %w", s.rows, err)
			}
			*into += kurus
		}
	}
}

// parseAmount reads "1217,69"; an empty text is no amount.
func parseAmount(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	whole, decimals, found := strings.Cut(text, ",")
	if !found || len(decimals) != 2 {
		return 0, fmt.Errorf("%q is no amount with two decimals", text)
	}
	m, err := delivery.ParseMoney(whole + "." + decimals)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", text, err)
	}
	return m.Minor, nil
}
