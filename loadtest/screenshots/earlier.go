package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/template"
	"time"
)

//go:embed earlier.sql
var earlierSQL string

var earlier = template.Must(template.New("earlier").Parse(earlierSQL))

// shares are how busy the days before today were, yesterday first, in percent of
// today: quiet ones in the middle of a week, full ones at its end.
var shares = []int{82, 61, 55, 58, 66, 91, 97, 78, 60, 52, 57, 63, 88}

// rememberEarlierDays fills the two weeks before today.
func (w *world) rememberEarlierDays(ctx context.Context) error {
	if err := w.awaitExport(ctx); err != nil {
		return err
	}
	for i, share := range shares {
		var statement strings.Builder
		if err := earlier.Execute(&statement, map[string]int{"Back": i + 1, "Share": share}); err != nil {
			return err
		}
		if _, err := w.ask(ctx, statement.String()); err != nil {
			return fmt.Errorf("%d days ago: %w", i+1, err)
		}
	}
	return nil
}

// awaitExport waits until ClickHouse has stood still for three seconds.
func (w *world) awaitExport(ctx context.Context) error {
	const count = "SELECT count(), sum(version) FROM delivery.orders FINAL"
	before, still := "", 0
	for range 120 {
		now, err := w.ask(ctx, count)
		if err != nil {
			return err
		}
		if now == before {
			still++
		} else {
			before, still = now, 0
		}
		if still == 3 {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("the export does not come to rest")
}

// ask sends one statement to ClickHouse.
func (w *world) ask(ctx context.Context, statement string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.ClickHouseURL(), strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("ClickHouse answers %d: %.300s", resp.StatusCode, answer)
	}
	return strings.TrimSpace(string(answer)), err
}
