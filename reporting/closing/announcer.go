package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// announcer announces what was delivered: closings and corrections as the log has them, days as they were recorded.
// Its failures delay no file.
type announcer struct {
	books    *Books
	announce func(context.Context, *delivery.AvailableReport) error
	attempts *attempts

	pending, oldest prometheus.Gauge
}

// once announces what is delivered and not announced, at whatever target, in the order of delivery.
func (a *announcer) once(ctx context.Context) error {
	all, err := a.books.archive.DeliverySets(ctx)
	if err != nil {
		return err
	}

	pending := slices.DeleteFunc(all, func(row archive.DeliverySet) bool {
		return row.DeliveredAt.IsZero() || !row.AnnouncedAt.IsZero()
	})
	slices.SortStableFunc(pending, func(x, y archive.DeliverySet) int { return x.DeliveredAt.Compare(y.DeliveredAt) })
	a.showPending(pending)
	if len(pending) == 0 {
		return nil
	}

	entries := map[string]*Entry{} // by folder
	l, unreadable := a.books.Read(ctx)
	if unreadable == nil {
		for _, e := range l.deliveredEntries() {
			entries[e.folder()] = e
		}
	}

	waiting := map[string]archive.DeliverySet{}
	var keys []string
	for _, row := range pending {
		_, isDay := dayOf(row.Name)
		waitsForLog := unreadable != nil && !isDay
		if waitsForLog {
			continue
		}

		key := announcementKey(&row)
		waiting[key] = row
		keys = append(keys, key)
	}

	failures := 0
	for _, key := range a.attempts.order(keys, a.books.now()) {
		if failures == failuresAtOnce {
			break
		}

		row := waiting[key]
		a.attempts.begin(key)
		err := a.announceSet(ctx, &row, entries[row.Name])
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err != nil {
			failures++
			if err := a.fail(ctx, key, &row, err); err != nil {
				return err
			}
			continue
		}

		a.attempts.succeeded(key)
		pending = slices.DeleteFunc(pending, func(row archive.DeliverySet) bool { return announcementKey(&row) == key })
		a.showPending(pending)
	}

	return unreadable
}

// announcementKey names a set among those of all targets.
func announcementKey(row *archive.DeliverySet) string { return row.Target + "/" + row.Name }

func (a *announcer) showPending(pending []archive.DeliverySet) {
	var deliveredAt []time.Time
	for i := range pending {
		deliveredAt = append(deliveredAt, pending[i].DeliveredAt)
	}
	showPending(a.pending, a.oldest, deliveredAt)
}

// announceSet announces one set: that of entry e or, if e is nil, that of a day. While finance has no receiver there is nobody to notify,
// now or later: it counts as announced, so a receiver that is registered later gets no old reports.
func (a *announcer) announceSet(ctx context.Context, listed *archive.DeliverySet, e *Entry) error {
	row, err := a.books.archive.DeliverySet(ctx, listed.Target, listed.Name)
	if err != nil {
		return err
	}

	isPending := row != nil && !row.DeliveredAt.IsZero() && row.AnnouncedAt.IsZero()
	if !isPending {
		return nil // another process was faster
	}

	report, err := a.reportOf(row, e)
	if err != nil {
		return err
	}
	err = a.announce(ctx, report)
	if err != nil && delivery.CodeOf(err) != delivery.CodeWebhookNotConfigured {
		return fmt.Errorf("announce %s: %w", report.ID, err)
	}

	a.books.step("announced")

	announced := row.Report
	err = a.books.changeSet(ctx, row.Target, row.Name, func(row *archive.DeliverySet) bool {
		isOther := row.Report != announced || row.DeliveredAt.IsZero()
		if isOther {
			return false // another process delivers the set again, to be announced by itself
		}

		row.AnnouncedAt = a.books.now()
		row.Error = ""
		return true
	})
	if err != nil {
		return err
	}

	a.books.step("noted")

	return nil
}

// reportOf returns what is announced of a set. Somebody who can write to ClickHouse may have recorded anything, so
// that of an entry is made from the log.
func (a *announcer) reportOf(row *archive.DeliverySet, e *Entry) (*delivery.AvailableReport, error) {
	_, isDay := dayOf(row.Name)
	if e == nil && !isDay {
		return nil, errNoEntry
	}

	if e != nil {
		s, err := a.books.entrySet(e)
		if err != nil {
			return nil, err
		}
		report := s.reportAt(row.Target, row.Name)
		report.At = row.DeliveredAt
		return report, nil
	}

	recorded, err := parseReport(row.Report)
	if err != nil {
		return nil, err
	}

	if recorded == nil {
		return nil, fmt.Errorf("of %s nothing was recorded that could be announced", row.Name)
	}

	isFolderOfDay := row.Folder == row.Name || strings.HasPrefix(row.Folder, row.Name+"-")
	isOther := recorded.Kind != delivery.ReportScheduled || recorded.ID != reportID(row.Target, row.Folder) || !isFolderOfDay
	if isOther {
		return nil, fmt.Errorf("what was recorded of %s is about something else", row.Name)
	}

	return recorded, nil
}

// errNoEntry reports that a set was recorded of which the log has no entry.
var errNoEntry = errors.New("the log of the books has no such entry")

// fail logs and records a failure for a new reason.
func (a *announcer) fail(ctx context.Context, key string, row *archive.DeliverySet, cause error) error {
	if !a.attempts.isNews(key, cause.Error(), row.Error) {
		return nil
	}

	a.books.log.Error("an announcement failed and will be tried again", "target", row.Target, "set", row.Name, "error", cause)
	return a.books.changeSet(ctx, row.Target, row.Name, func(row *archive.DeliverySet) bool {
		row.Error = cause.Error()
		return row.AnnouncedAt.IsZero()
	})
}
