package closing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

const (
	// mostDays bounds how many past days are caught up on: a year and a month. Older ones are not delivered.
	mostDays = 396

	// setsAtOnce ends a look, so that a new closing is not behind a year of days.
	setsAtOnce = 20

	// foldersAtOnce bounds the folders that a look begins for one day. The next look goes on with the
	// next number.
	foldersAtOnce = 9

	// clockTolerance is how far the clock may go back before times of delivery count as wrong.
	clockTolerance = time.Hour
)

// parseDaily returns how long after a day's end its reports are due, from a time such as 07:00 that deliver.Settings
// has validated. It returns nil for an empty text: days are never delivered.
func parseDaily(daily string) *time.Duration {
	at, err := time.Parse("15:04", daily)
	if err != nil {
		return nil
	}
	clock := time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	return &clock
}

// targetQueue delivers to one target what it is owed: every closing and correction of the log, and every
// day from the first on that was due there. The first is the day before the target was first seen with
// deliver.daily.
type targetQueue struct {
	books    *Books
	target   *deliver.Target // nil: there is none, and sets are only announced
	name     string          // of the target; empty: there is none
	daily    *time.Duration  // from a day's end until its reports are due; nil: they never are
	attempts *attempts

	pending, oldest   prometheus.Gauge
	delivered, failed prometheus.Counter
}

// once records what has become due, and tries what is pending. While the log cannot be read, sets of its
// entries are left alone, and days, whose reports need it, wait for it by themselves.
func (q *targetQueue) once(ctx context.Context) error {
	recorded, err := q.recorded(ctx)
	if err != nil {
		return err
	}

	err = q.takeBackEarly(ctx, recorded)
	if err != nil {
		return err
	}

	var due []archive.DeliverySet
	entries := map[string]*Entry{} // by folder
	log, unreadable := q.books.Read(ctx)
	if unreadable == nil {
		for _, e := range log.deliveredEntries() {
			entries[e.folder()] = e
			due = append(due, q.newRow(e.folder(), q.books.now()))
		}
	}

	due = append(due, q.dueDays(recorded)...)
	if err := q.recordNew(ctx, due, recorded); err != nil {
		return errors.Join(unreadable, err)
	}

	pending := q.pendingOf(due, recorded)
	if unreadable != nil {
		pending = append(pending, q.pendingEntries(recorded)...)
	}

	q.showPending(pending)

	failed := q.deliverPending(ctx, pending, entries)

	return errors.Join(unreadable, failed)
}

// recorded returns the rows of this target by their sets' names.
func (q *targetQueue) recorded(ctx context.Context) (map[string]*archive.DeliverySet, error) {
	all, err := q.books.archive.DeliverySets(ctx)
	if err != nil {
		return nil, err
	}

	recorded := map[string]*archive.DeliverySet{}
	for i := range all {
		if all[i].Target == q.name {
			recorded[all[i].Name] = &all[i]
		}
	}

	return recorded, nil
}

// takeBackEarly makes sets due again that were delivered later than now: by a clock that was ahead, perhaps
// before their day was over. What is there of them stays.
func (q *targetQueue) takeBackEarly(ctx context.Context, recorded map[string]*archive.DeliverySet) error {
	now := q.books.now()
	for name, listed := range recorded {
		if !listed.DeliveredAt.After(now.Add(clockTolerance)) {
			continue
		}

		q.books.log.Warn("a set was delivered later than now, and is due again: the clock was changed", "target", q.name, "set", name, "delivered", listed.DeliveredAt)
		err := q.books.changeSet(ctx, q.name, name, func(row *archive.DeliverySet) bool {
			isTakenBack := row.DeliveredAt.IsZero()
			row.DeliveredAt = time.Time{}
			row.Report = ""
			row.Manifest = ""
			return !isTakenBack
		})
		if err != nil {
			return err
		}

		listed.DeliveredAt = time.Time{}
	}

	return nil
}

// newRow returns the row of a set of which nothing is recorded yet.
func (q *targetQueue) newRow(name string, dueAt time.Time) archive.DeliverySet {
	return archive.DeliverySet{
		Target: q.name, Name: name, Version: 1, ChangedAt: q.books.now(), DueAt: dueAt, Folder: name,
	}
}

// dueDays returns a new row for each day up to yesterday; yesterday's can have a DueAt in the future.
func (q *targetQueue) dueDays(recorded map[string]*archive.DeliverySet) []archive.DeliverySet {
	if q.daily == nil || q.target == nil {
		return nil
	}

	yesterday := archive.BusinessDay(q.books.now().In(delivery.Istanbul)).AddDate(0, 0, -1)
	first := yesterday
	for name := range recorded {
		day, isDay := dayOf(name)
		if isDay && day.Before(first) {
			first = day
		}
	}

	if earliest := yesterday.AddDate(0, 0, 1-mostDays); first.Before(earliest) {
		first = earliest
	}

	var due []archive.DeliverySet
	for day := first; !day.After(yesterday); day = day.AddDate(0, 0, 1) {
		end := day.AddDate(0, 0, 1)
		due = append(due, q.newRow(dayName(day), end.Add(*q.daily)))
	}

	return due
}

// recordNew records the sets of which nothing is recorded yet, and adds their rows to recorded.
func (q *targetQueue) recordNew(ctx context.Context, due []archive.DeliverySet, recorded map[string]*archive.DeliverySet) error {
	var rows []archive.DeliverySet
	for _, row := range due {
		if recorded[row.Name] == nil {
			rows = append(rows, row)
		}
	}

	if len(rows) == 0 {
		return nil
	}

	if err := q.books.archive.RecordDeliverySets(ctx, rows); err != nil {
		return err
	}

	q.books.step("due")
	for i := range rows {
		recorded[rows[i].Name] = &rows[i]
	}

	return nil
}

// pendingOf returns the rows of sets that are due by now and not delivered. Whether a set is due does not depend
// on what was recorded by a clock that may have been ahead.
func (q *targetQueue) pendingOf(due []archive.DeliverySet, recorded map[string]*archive.DeliverySet) []archive.DeliverySet {
	now := q.books.now()
	var pending []archive.DeliverySet
	for _, set := range due {
		row := *recorded[set.Name]
		if !row.DeliveredAt.IsZero() || set.DueAt.After(now) {
			continue
		}

		if set.DueAt.Before(row.DueAt) {
			row.DueAt = set.DueAt
		}

		pending = append(pending, row)
	}

	return pending
}

// pendingEntries returns the rows of closings and corrections that are not delivered. Without the log they
// cannot be tried.
func (q *targetQueue) pendingEntries(recorded map[string]*archive.DeliverySet) []archive.DeliverySet {
	var pending []archive.DeliverySet
	for name, row := range recorded {
		_, isDay := dayOf(name)
		if !isDay && row.DeliveredAt.IsZero() {
			pending = append(pending, *row)
		}
	}
	return pending
}

func (q *targetQueue) showPending(pending []archive.DeliverySet) {
	var dueAt []time.Time
	for i := range pending {
		dueAt = append(dueAt, pending[i].DueAt)
	}
	showPending(q.pending, q.oldest, dueAt)
}

// deliverPending tries pending sets, the longest untried first. Sets of entries are in entries, by folder; all others
// are days. The failure of a set is recorded with it; the error is that of recording it, or of ctx.
func (q *targetQueue) deliverPending(ctx context.Context, pending []archive.DeliverySet, entries map[string]*Entry) error {
	rows := map[string]*archive.DeliverySet{}
	var names []string
	for _, row := range pending {
		_, isDay := dayOf(row.Name)
		canBeTried := isDay || entries[row.Name] != nil
		if canBeTried {
			rows[row.Name] = &row
			names = append(names, row.Name)
		}
	}

	tried, failures := 0, 0
	for _, name := range q.attempts.order(names, q.books.now()) {
		if tried == setsAtOnce || failures == failuresAtOnce {
			break
		}

		tried++
		q.attempts.begin(name)
		err := q.deliver(ctx, name, entries[name])
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err != nil {
			failures++
			if err := q.fail(ctx, rows[name], err); err != nil {
				return err
			}
			continue
		}

		q.attempts.succeeded(name)
		q.delivered.Inc()
		pending = slices.DeleteFunc(pending, func(row archive.DeliverySet) bool { return row.Name == name })
		q.showPending(pending)
	}

	return nil
}

// fail counts a failure of a set; one for a new reason is logged and recorded.
func (q *targetQueue) fail(ctx context.Context, row *archive.DeliverySet, cause error) error {
	q.failed.Inc()
	mayPass := errors.Is(cause, delivery.ErrUnavailable)
	if !mayPass {
		q.attempts.pause(row.Name, q.books.now())
	}

	if !q.attempts.isNews(row.Name, cause.Error(), row.Error) {
		return nil
	}

	q.books.log.Error("a delivery failed and will be tried again", "target", q.name, "set", row.Name, "error", cause)

	return q.books.changeSet(ctx, q.name, row.Name, func(row *archive.DeliverySet) bool {
		row.Error = cause.Error()
		return row.DeliveredAt.IsZero()
	})
}

// deliver delivers the set of entry e or, if e is nil, the day that name names.
func (q *targetQueue) deliver(ctx context.Context, name string, e *Entry) error {
	if e == nil {
		return q.deliverDay(ctx, name)
	}

	s, err := q.books.entrySet(e)
	if err != nil {
		return err
	}
	if err := q.send(ctx, name, s); err != nil {
		return err
	}

	return q.recordDelivered(ctx, name, name, s.reportAt(q.name, name))
}

// send puts the files of a set into a folder. Without a target there is nothing to send.
func (q *targetQueue) send(ctx context.Context, folder string, s *fileSet) error {
	if q.target == nil {
		return nil
	}
	return q.target.Deliver(ctx, folder, s.files, func(f deliver.File, _ bool) { q.books.step("delivered " + f.Name) })
}

// deliverDay delivers a day's reports as they are now. Its files are recorded before any of them is sent.
// So when reports have changed since an attempt that was cut off, the recorded files tell whether that
// attempt has finished. A folder that holds part of another attempt stays as it is, and the next number is
// taken.
func (q *targetQueue) deliverDay(ctx context.Context, name string) error {
	row, err := q.books.archive.DeliverySet(ctx, q.name, name)
	if err != nil {
		return err
	}

	if row == nil || !row.DeliveredAt.IsZero() {
		return nil // another process was faster
	}

	day, _ := dayOf(name)
	s, err := q.books.daySet(ctx, day)
	if err != nil {
		return err
	}
	planned, err := parseReport(row.Report)
	if err != nil {
		return err
	}

	isChanged := planned != nil && !s.hasFilesOf(planned)
	if isChanged {
		wrong, err := q.target.Check(ctx, row.Folder, filesOf(planned))
		if err != nil {
			return err
		}
		if len(wrong) == 0 {
			return q.recordDelivered(ctx, name, row.Folder, planned)
		}
	}

	folder := row.Folder
	for range foldersAtOnce {
		report := s.reportAt(q.name, folder)
		isDone, err := q.recordPlan(ctx, name, folder, report)
		if err != nil || isDone {
			return err
		}

		err = q.send(ctx, folder, s)
		if err == nil {
			return q.recordDelivered(ctx, name, folder, report)
		}

		if !errors.Is(err, deliver.ErrDiffers) {
			return err
		}

		folder = nextFolder(name, folder)
	}

	return fmt.Errorf("deliver to %s: %w, in each folder from %s on that was tried", q.name, deliver.ErrDiffers, row.Folder)
}

// recordPlan records which files a day's folder will have. It reports whether another process has delivered
// the day in the meantime.
func (q *targetQueue) recordPlan(ctx context.Context, name, folder string, report *delivery.AvailableReport) (isDone bool, err error) {
	err = q.books.changeSet(ctx, q.name, name, func(row *archive.DeliverySet) bool {
		isDone = !row.DeliveredAt.IsZero()
		isPlanned := row.Folder == folder && row.Manifest == manifestOf(report)
		if isDone || isPlanned {
			return false
		}

		row.Folder = folder
		row.Manifest = manifestOf(report)
		row.Report = formatReport(report)
		row.AnnouncedAt = time.Time{}

		return true
	})

	if err == nil {
		q.books.step("planned")
	}

	return isDone, err
}

// recordDelivered records that all files of a set are in a folder, and what is announced of it. Of two
// folders of a day that two processes have filled at once, the one with the higher number counts.
func (q *targetQueue) recordDelivered(ctx context.Context, name, folder string, report *delivery.AvailableReport) error {
	q.books.step("set delivered")
	now := q.books.now()
	delivered := *report
	delivered.At = now
	err := q.books.changeSet(ctx, q.name, name, func(row *archive.DeliverySet) bool {
		isSuperseded := !row.DeliveredAt.IsZero() && folderNumber(name, row.Folder) >= folderNumber(name, folder)
		if isSuperseded {
			return false
		}

		isOther := row.Folder != folder || row.Manifest != manifestOf(report)
		if isOther {
			row.AnnouncedAt = time.Time{}
		}

		row.Folder = folder
		row.Manifest = manifestOf(report)
		row.Report = formatReport(&delivered)
		row.DeliveredAt = now
		row.Error = ""

		return true
	})

	if err == nil {
		q.books.step("recorded")
	}

	return err
}

const daySuffix = "-daily"

// dayName is the name of a day's set.
func dayName(day time.Time) string { return day.Format(time.DateOnly) + daySuffix }

// dayOf returns the local midnight of the day whose set has a name.
func dayOf(name string) (day time.Time, isDay bool) {
	text, isDay := strings.CutSuffix(name, daySuffix)
	if !isDay {
		return time.Time{}, false
	}
	day, err := time.ParseInLocation(time.DateOnly, text, delivery.Istanbul)
	return day, err == nil
}

// folderNumber returns 1 for the folder that has a set's name, n for the one with -n behind it.
func folderNumber(name, folder string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(folder, name+"-"))
	if err != nil {
		return 1
	}
	return n
}

func nextFolder(name, folder string) string {
	return fmt.Sprintf("%s-%d", name, folderNumber(name, folder)+1)
}
