package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// measureDownloads downloads the order ledger of the whole year over HTTP and writes it to a file, and a fifth of it
// as a workbook. Every process is started again before, so that its peak is that of one download.
func (b *bench) measureDownloads(ctx context.Context) error {
	y, err := b.openYear(ctx)
	if err != nil {
		return err
	}
	whole, fifth := scope{from: yearFirst, to: yearLast}, scope{from: yearFirst, to: "2026-03-14"} // 73 days
	truth, err := y.truth(ctx, whole)
	if err != nil {
		return err
	}
	digest, err := y.downloadCSV(ctx, whole, truth[0])
	if err != nil {
		return err
	}
	path := filepath.Join(y.dir, "order-ledger.csv")
	if err := y.writeReport(ctx, "download.file", path, whole, truth[0]); err != nil {
		return err
	}
	sums, same, err := readLedger(path)
	if err != nil {
		return err
	}
	differs := differences(sums, truth)
	if !bytes.Equal(digest, same) {
		differs++
	}
	b.add("download.differs", float64(differs))
	if err := os.Remove(path); err != nil {
		return err
	}
	if truth, err = y.truth(ctx, fifth); err != nil {
		return err
	}
	return y.writeReport(ctx, "download.xlsx", filepath.Join(y.dir, "order-ledger.xlsx"), fifth, truth[0])
}

// truth is the rows of an order ledger, and the sums of their amounts,
// collections and expected collections in kuruş: of the table, not of the view.
func (y *year) truth(ctx context.Context, s scope) ([]int64, error) {
	return y.askNumbers(ctx, 4, fmt.Sprintf(`SELECT count(), toInt64(sum(order_amount) * 100),
		toInt64(sum(collection_amount) * 100), toInt64(sumIf(collection_amount, status = 'Delivered' AND payment_type IN ('Cash', 'Card')) * 100)
		FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s'`, s.from, s.to))
}

// addDownload notes what one download of rows took: reporting's peak memory, at
// most 200 MB for any length, and the time.
func (b *bench) addDownload(key string, peak uint64, took time.Duration, rows, bytes int64) {
	b.add(key+".memory", megabytes(peak))
	b.note(key+".memory", "%s rows", harness.Grouped(rows))
	b.add(key+".seconds", took.Seconds())
	b.note(key+".seconds", "%s rows/s, %s MB", harness.Number(float64(rows)/took.Seconds()), harness.Number(float64(bytes)/1e6))
	b.progress("%s: %s rows in %.1f s, peak of reporting %.0f MB", key, harness.Grouped(rows), took.Seconds(), megabytes(peak))
}

func megabytes(bytes uint64) float64 { return float64(bytes) / 1e6 }

// downloadCSV downloads the ledger from processes that have done nothing before and returns its SHA-256.
func (y *year) downloadCSV(ctx context.Context, s scope, rows int64) (digest []byte, err error) {
	y.Reporting.Stop()
	y.ClickHouse.Stop()
	if err := errors.Join(y.ClickHouse.Start(ctx), y.Reporting.Start(ctx)); err != nil {
		return nil, err
	}
	before, err := harness.MemoryOf(y.ClickHouse.PID())
	if err != nil {
		return nil, err
	}
	began := time.Now()
	var resp *http.Response
	if resp, err = y.open(ctx, "order-ledger.csv", s); err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	hash := sha256.New()
	_, err = io.CopyN(hash, resp.Body, 1)
	first := time.Since(began)
	var rest int64
	if err == nil {
		rest, err = io.Copy(hash, resp.Body)
	}
	took := time.Since(began)
	if err != nil {
		return nil, fmt.Errorf("download the ledger: %w", errors.Join(err, y.Reporting.Check()))
	}
	reporting, err := harness.MemoryOf(y.Reporting.PID())
	if err != nil {
		return nil, err
	}
	engine, err := harness.MemoryOf(y.ClickHouse.PID())
	if err != nil {
		return nil, err
	}
	y.bench.addDownload("download.http", reporting.Peak, took, rows, 1+rest)
	y.bench.note("download.http.seconds", "first byte after %s ms", harness.Number(milliseconds(first)))
	y.bench.add("download.http.engine", megabytes(engine.Peak))
	y.bench.note("download.http.engine", "before %s MB", harness.Number(megabytes(before.Now)))
	return hash.Sum(nil), nil
}

func (y *year) writeReport(ctx context.Context, key, path string, s scope, rows int64) error {
	p := &stack.Program{Name: "report", Path: y.bench.file("bin", "reporting"), Log: filepath.Join(y.dir, "report.log"),
		Args: []string{"report", "order-ledger", "--from", s.from, "--to", s.to, "-o", path},
		Env:  []string{"ENVIRONMENT=sandbox", "CLICKHOUSE_URL=" + y.ClickHouseURL()}}
	began := time.Now()
	if err := p.Start(ctx); err != nil {
		return err
	}
	stop := harness.Watch(ctx, 10*time.Millisecond, harness.Process{Name: "report", PID: p.PID()})
	err := p.Wait(ctx)
	watched, took := stop(), time.Since(began)
	if err != nil {
		return err
	}
	if len(watched) == 0 {
		return errors.New("the report's process was never seen")
	}
	file, err := os.Stat(path)
	if err != nil {
		return err
	}
	y.bench.addDownload(key, watched[0].Peak, took, rows, file.Size())
	return nil
}

func readLedger(path string) (sums []int64, digest []byte, err error) {
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
