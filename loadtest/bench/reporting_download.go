// This file measures what downloads of a year take in memory, and that they are exact.

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

func downloadFigures() []*figure {
	return []*figure{
		{Key: "download.http.memory", What: "the year as CSV over HTTP: peak memory of reporting", Unit: "MB", Limit: atMost(mostMemory)},
		{Key: "download.http.seconds", What: "  seconds", Unit: "s"},
		{Key: "download.http.engine", What: "  peak memory of the engine", Unit: "MB"},
		{Key: "download.file.memory", What: "CSV as a file: peak memory of reporting", Unit: "MB", Limit: atMost(mostMemory)},
		{Key: "download.file.seconds", What: "  seconds", Unit: "s"},
		{Key: "download.differs", What: "  rows and sums that are not ClickHouse's, in either", Limit: atMost(0)},
		{Key: "download.xlsx.memory", What: "a fifth of it as XLSX: peak memory of reporting", Unit: "MB", Limit: atMost(mostMemory)},
		{Key: "download.xlsx.seconds", What: "  seconds", Unit: "s"},
	}
}

// measureDownloads downloads the order ledger of the whole year over HTTP and writes it to a file, and a fifth of it
// as a workbook. Every process is started again before, so that its peak is that of one download.
func (b *bench) measureDownloads(ctx context.Context) {
	e := b.openYear(ctx)
	whole, fifth := scope{from: yearFirst, to: yearLast}, scope{from: yearFirst, to: "2025-03-14"} // 73 days

	truth := e.truth(ctx, whole)
	digest := e.downloadCSV(ctx, whole, truth[0])
	path := filepath.Join(e.dir, "order-ledger.csv")
	e.writeReport(ctx, "download.file", path, whole, truth[0])

	differs := differences(got(ledgerSums(path)), append(truth, 0))
	file := got(os.Open(path))
	defer file.Close()
	hash := sha256.New()
	got(io.Copy(hash, file))
	if !bytes.Equal(digest, hash.Sum(nil)) {
		differs++
	}

	b.add("download.differs", differs)
	must(os.Remove(path))

	e.writeReport(ctx, "download.xlsx", filepath.Join(e.dir, "order-ledger.xlsx"), fifth, e.truth(ctx, fifth)[0])
}

// truth returns the rows of an order ledger, and the sums of their amounts,
// collections and expected collections in kuruş: of the table, not of the view.
func (e *reportingEnv) truth(ctx context.Context, s scope) []int64 {
	return e.askNumbers(ctx, fmt.Sprintf(`SELECT count(), toInt64(sum(order_amount) * 100),
		toInt64(sum(collection_amount) * 100), toInt64(sumIf(collection_amount, status = 'Delivered' AND payment_type IN ('Cash', 'Card')) * 100)
		FROM delivery.orders FINAL WHERE business_day BETWEEN '%s' AND '%s'`, s.from, s.to))
}

// addDownload notes what one download of rows took: reporting's peak memory and the time.
func (b *bench) addDownload(key string, peak uint64, took time.Duration, rows, bytes int64) {
	b.add(key+".memory", megabytes(peak))
	b.note(key+".memory", "%s rows", harness.Grouped(rows))
	b.add(key+".seconds", took.Seconds())
	b.note(key+".seconds", "%s rows/s, %s MB", number(float64(rows)/took.Seconds()), number(float64(bytes)/1e6))
	b.progress("%s: %s rows in %.1f s, peak of reporting %.0f MB", key, harness.Grouped(rows), took.Seconds(), megabytes(peak))
}

// downloadCSV downloads the ledger from processes that have done nothing before and returns its SHA-256.
func (e *reportingEnv) downloadCSV(ctx context.Context, s scope, rows int64) (digest []byte) {
	e.Reporting.Stop()
	e.ClickHouse.Stop()
	must(errors.Join(e.ClickHouse.Start(ctx), e.Reporting.Start(ctx)))
	stop := harness.Watch(ctx, time.Minute, harness.Process{Name: "reporting", PID: e.Reporting.PID()},
		harness.Process{Name: "engine", PID: e.ClickHouse.PID()})
	defer stop()

	began := time.Now()
	resp := e.open(ctx, "order-ledger.csv", s)
	defer resp.Body.Close()
	hash := sha256.New()
	_, err := io.CopyN(hash, resp.Body, 1)
	first := time.Since(began)
	var rest int64
	if err == nil {
		rest, err = io.Copy(hash, resp.Body)
	}

	took, watched := time.Since(began), stop()

	if len(watched) < 2 { // one has ended
		err = errors.Join(err, errors.New("a process was never seen"))
	}

	if err != nil {
		must(fmt.Errorf("download the ledger: %w", errors.Join(err, e.Reporting.Check())))
	}

	reporting, engine := watched[0], watched[1]
	e.bench.addDownload("download.http", reporting.Peak, took, rows, 1+rest)
	e.bench.note("download.http.seconds", "first byte after %s ms", number(milliseconds(first)))
	e.bench.add("download.http.engine", megabytes(engine.Peak))
	e.bench.note("download.http.engine", "before %s MB", number(megabytes(engine.Begin)))

	return hash.Sum(nil)
}

// writeReport writes an order ledger to a file, on the command line.
func (e *reportingEnv) writeReport(ctx context.Context, key, path string, s scope, rows int64) {
	took, peak := runWatched(ctx, e.reportCommand(ctx, "order-ledger", s, path))
	e.bench.addDownload(key, peak, took, rows, got(os.Stat(path)).Size())
}

// reportCommand is the command that writes a report to a file.
func (e *reportingEnv) reportCommand(ctx context.Context, name string, s scope, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.bench.file("bin", "reporting"), "report", name, "--from", s.from, "--to", s.to, "-o", path)
	cmd.Env = append(os.Environ(), "ENVIRONMENT=sandbox", "CLICKHOUSE_URL="+e.ClickHouseURL(), "REDIS_URL="+e.RedisURL(stack.ReportingUser))
	return cmd
}

// runWatched runs a command of reporting to its end and returns how long it took and its peak memory in bytes.
func runWatched(ctx context.Context, cmd *exec.Cmd) (took time.Duration, peak uint64) {
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said

	began := time.Now()
	must(cmd.Start())
	stop := harness.Watch(ctx, 10*time.Millisecond, harness.Process{Name: "command", PID: cmd.Process.Pid})
	err := cmd.Wait()
	took = time.Since(began)
	watched := stop()

	if err == nil && len(watched) == 0 {
		err = errors.New("the process was never seen")
	}

	if err != nil {
		must(fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, said.String()))
	}

	return took, watched[0].Peak
}

// amountInSpreadsheet is an amount in an order ledger for spreadsheets; empty if none is known.
var amountInSpreadsheet = regexp.MustCompile(`^([0-9]+,[0-9]{2})?$`)

// ledgerSums reads an order ledger as spreadsheets get it (semicolons, decimal commas, a byte order mark). It returns what
// truth does and, behind that, the number of rows in which an amount does not have two decimals.
func ledgerSums(path string) ([]int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	rows := csv.NewReader(bufio.NewReaderSize(file, 1<<20))
	rows.Comma = ';'
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header of %s: %w", path, err)
	}

	var columns []int
	for _, name := range []string{"orderAmount", "collectionAmount", "expectedCollection"} {
		columns = append(columns, slices.Index(header, name))
	}

	if slices.Contains(columns, -1) {
		return nil, fmt.Errorf("%s has the columns %q", path, header)
	}

	sums := make([]int64, 5)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return sums, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}

		sums[0]++
		malformed := false
		for i, column := range columns {
			amount := row[column]
			if !amountInSpreadsheet.MatchString(amount) {
				malformed = true
				continue
			}

			if amount == "" {
				continue
			}

			kurus, err := strconv.ParseInt(strings.Replace(amount, ",", "", 1), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}

			sums[1+i] += kurus
		}

		if malformed {
			sums[4]++
		}
	}
}
