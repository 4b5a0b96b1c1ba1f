package deliver

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vendorapi/internal/delivery"
)

// A slowPlace has nothing, keeps nothing, and takes its time.
type slowPlace struct {
	connecting, reading, writing time.Duration

	block time.Duration // for each block that is written
}

func (p *slowPlace) open(ctx context.Context) (place, error) { return p, pass(ctx, p.connecting) }

func (p *slowPlace) read(ctx context.Context, _ string) (io.ReadCloser, error) {
	if err := pass(ctx, p.reading); err != nil {
		return nil, err
	}
	return nil, fs.ErrNotExist
}

func (p *slowPlace) write(ctx context.Context, _ string, content *upload) error {
	reader := content.reader()
	for block := make([]byte, 10); ; {
		if _, err := reader.Read(block); err != nil {
			break
		}
		if err := pass(ctx, p.block); err != nil {
			return err
		}
	}

	return pass(ctx, p.writing)
}

func (p *slowPlace) folders(ctx context.Context) ([]string, error) { return nil, pass(ctx, p.reading) }

// pass waits until a time has passed, or ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A target that does nothing for a minute is given up on, and tried again later. The time that ClickHouse takes for a
// file, or for what is noted of it, is not the target's.
func TestDeliver_GivesUpOnATargetThatStalls(t *testing.T) {
	t.Parallel()

	const short, long = 59 * time.Second, 61 * time.Second
	for _, c := range []struct {
		what    string
		target  slowPlace
		content time.Duration // until the content of a file is there
		done    time.Duration // until it is noted that a file is there
		stalls  bool
	}{
		{what: "connecting", target: slowPlace{connecting: long}, stalls: true},
		{what: "connecting, less than a minute", target: slowPlace{connecting: short}},
		{what: "reading", target: slowPlace{reading: long}, stalls: true},
		{what: "reading, less than a minute for each file", target: slowPlace{reading: short}},
		{what: "the end of a write", target: slowPlace{writing: long}, stalls: true},
		{what: "a block of a write", target: slowPlace{block: long}, stalls: true},
		{what: "a write that goes on", target: slowPlace{block: short}},
		{what: "ClickHouse, for a report", content: time.Hour},
		{what: "ClickHouse, for a note", done: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			target := &Target{Name: "erp", LongestPause: longestPause, open: c.target.open}
			text := strings.Repeat("0123456789", 5)
			files := []File{file("a.csv", text), file("b.csv", text), file("manifest.json", text)}
			for i, f := range files {
				files[i].Write = func(ctx context.Context, w io.Writer) error {
					time.Sleep(c.content)
					return f.Write(ctx, w)
				}
			}

			err := target.Deliver(t.Context(), month, files, func(File, bool) { time.Sleep(c.done) })

			isGivenUp := errors.Is(err, delivery.ErrUnavailable) && strings.Contains(err.Error(), "no progress for 1m0s")
			if isGivenUp != c.stalls || err != nil && !c.stalls {
				t.Errorf("%s: %v", c.what, err)
			}
		})
	}
}
