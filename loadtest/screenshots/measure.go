package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vendorapi/internal/testenv/browser"
)

// The limits: every page before its charts, on this data.
const (
	maxBytes = 100_000
	maxTime  = 100 * time.Millisecond
)

// reading is what one page takes.
type reading struct {
	path   string
	bytes  int // of the page, its stylesheet and scripts, as they came, without the charts' script
	median time.Duration
}

// measure reads every page of the panel some times, as the browser that has
// signed in does, and prints what each takes.
func (e *env) measure(ctx context.Context, tab *browser.Tab, reads int) error {
	cookie, err := tab.Cookies()
	if err != nil {
		return err
	}
	pages, err := e.pages(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "page\tbytes\tmedian\t")
	var large, slow []string
	for _, path := range pages {
		r, err := e.read(ctx, tab, path, cookie, reads)
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%d\t%.1f ms\t\n", r.path, r.bytes, float64(r.median.Microseconds())/1000)
		if r.bytes > maxBytes {
			large = append(large, r.path)
		}
		if r.median > maxTime {
			slow = append(slow, r.path)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(slow) > 0 { // said, not failed: the machine may be busy
		e.log("slower than %v: %s", maxTime, strings.Join(slow, ", "))
	}
	if len(large) > 0 {
		return fmt.Errorf("larger than %d bytes: %s", maxBytes, strings.Join(large, ", "))
	}
	return nil
}

// pages are all kinds of page, one of each.
func (e *env) pages(ctx context.Context) ([]string, error) {
	order, err := e.ask(ctx, "SELECT order_id FROM delivery.orders FINAL WHERE status = 'Delivered' AND business_day >= toDate(now('Etc/GMT-3')) AND account_id = '"+e.vendors[0].AccountID+"' LIMIT 1")
	if err != nil {
		return nil, err
	}
	v := e.vendors[0]
	absentOne := e.vendors[slices.IndexFunc(e.vendors, func(v *vendor) bool { return v.plan.Receiver == "absent" })]
	pages := []string{
		"/login", "/overview", "/overview/live", "/orders", "/orders?q=" + v.plan.Branches[0].ID, "/orders/" + order,
		"/webhooks", "/webhooks/" + absentOne.AccountID, "/accounts", "/accounts/" + v.AccountID,
		"/fleets", "/fleets/" + e.Demo.Fleet.FleetID, "/stores", "/stores/" + v.AccountID + "/" + v.plan.Branches[0].ID,
		"/refused-updates", "/dead-letters", e.tracked, "/payments?" + e.fortnight(),
	}
	for _, report := range []string{"order-ledger", "fleet-statement", "exceptions", "control-totals", "control-totals/lines"} {
		pages = append(pages, "/payments/"+report+"?"+e.fortnight())
	}
	return pages, nil
}

// read measures one page. Its bytes are those over the wire as a browser sees
// them the first time, compressed where they come compressed.
func (e *env) read(ctx context.Context, tab *browser.Tab, path, cookie string, reads int) (*reading, error) {
	r := &reading{path: path}
	var took []time.Duration
	for range reads {
		began := time.Now()
		n, err := e.fetch(ctx, path, cookie)
		if err != nil {
			return nil, err
		}
		took, r.bytes = append(took, time.Since(began)), n
	}
	slices.Sort(took)
	r.median = took[len(took)/2]
	if strings.HasSuffix(path, "/live") {
		return r, nil // loads nothing of its own
	}
	if err := tab.Open(path); err != nil {
		return nil, err
	}
	parts, err := browser.Evaluate[[]string](tab, `[...document.querySelectorAll('link[rel=stylesheet], link[rel=icon], script[src]')]
		.map(e => new URL(e.href || e.src).pathname).filter(path => !path.includes('chart'))`)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		n, err := e.fetch(ctx, part, cookie)
		if err != nil {
			return nil, err
		}
		r.bytes += n
	}
	return r, nil
}

// fetch reads a path to its end and returns its bytes over the wire.
func (e *env) fetch(ctx context.Context, path, cookie string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.Demo.PanelURL+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Accept", "text/html,*/*")
	req.Header.Set("Accept-Encoding", "gzip, deflate, br, zstd") // set by hand, so what comes is not unpacked
	req.Header.Set("Cookie", cookie)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d", path, resp.StatusCode)
	}
	return int(n), err
}
