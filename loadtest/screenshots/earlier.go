package main

import (
	"context"
	_ "embed"
	"fmt"
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

// fillEarlierDays fills the two weeks before today.
func (e *env) fillEarlierDays(ctx context.Context) error {
	if err := e.awaitExport(ctx); err != nil {
		return err
	}
	for i, share := range shares {
		var statement strings.Builder
		if err := earlier.Execute(&statement, map[string]int{"Back": i + 1, "Share": share}); err != nil {
			return err
		}
		if _, err := e.ask(ctx, statement.String()); err != nil {
			return fmt.Errorf("%d days ago: %w", i+1, err)
		}
	}
	return nil
}

// awaitExport waits until ClickHouse has stood still for three seconds.
func (e *env) awaitExport(ctx context.Context) error {
	var before string
	var since time.Time
	return await(ctx, "the export has come to rest", func() (bool, error) {
		now, err := e.ask(ctx, "SELECT count(), sum(version) FROM delivery.orders FINAL")
		if now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) >= 3*time.Second, err
	})
}

// ask sends one statement to ClickHouse.
func (e *env) ask(ctx context.Context, statement string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.ClickHouseURL(), strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	answer, err := send(req)
	return strings.TrimSpace(string(answer)), err
}
