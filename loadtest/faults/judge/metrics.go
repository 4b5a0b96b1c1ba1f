package judge

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// readMetrics sums up what the programs tell of themselves; a program that does
// not answer is left out, because nothing is judged by it.
func (s *Sources) readMetrics(ctx context.Context, f *Facts) error {
	f.Metrics = make(map[string]float64)
	for program, address := range s.Metrics {
		if err := s.readMetricsOf(ctx, address, f.Metrics); err != nil {
			f.Metrics["unread{program=\""+program+"\"}"] = 1
		}
	}
	return ctx.Err()
}

func (s *Sources) readMetricsOf(ctx context.Context, address string, into map[string]float64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := s.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %d", address, resp.StatusCode)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, value, ok := sample(lines.Text())
		if ok {
			into[name] += value
		}
	}
	return lines.Err()
}

// sample reads one line of the exposition format; comments, histograms' buckets
// and the runtime's own figures are left out.
func sample(line string) (name string, value float64, ok bool) {
	at := strings.LastIndexByte(line, ' ')
	if at < 0 || line[0] == '#' {
		return "", 0, false
	}
	name = line[:at]
	if strings.Contains(name, "_bucket{") || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	return name, value, err == nil
}
