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

// schedule says when the reports of a day are due.
type schedule struct {
	isDaily bool
	clock   time.Duration // after the midnight at which the day ends
}

// newSchedule reads a time such as 07:00, which deliver.Settings has validated; empty: no day is ever due.
func newSchedule(daily string) schedule {
	at, err := time.Parse("15:04", daily)
	if err != nil {
		return schedule{}
	}
	return schedule{isDaily: true, clock: time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute}
}

// dueAt returns when the reports of a day are due.
func (s schedule) dueAt(day time.Time) time.Time { return day.AddDate(0, 0, 1).Add(s.clock) }

// dueSet is a set that a target is owed: of an entry of the log, or of a day.
type dueSet struct {
	name  string
	dueAt time.Time

	entry *Entry    // nil: of a day
	day   time.Time // local midnight
}

// targetQueue delivers to one target what it is owed: every closing and correction of the log, and every
// day from the first on that was due there. The first is the day before the target was first seen with
// deliver.daily.
type targetQueue struct {
	books    *Books
	target   *deliver.Target // nil: there is none, and sets are only announced
	name     string          // of the target; empty: there is none
	schedule schedule
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

	due := q.dueDays(recorded)
	log, unreadable := q.books.Read(ctx)
	if unreadable == nil {
		due = append(q.dueEntries(log), due...)
	}
	if err := q.recordNew(ctx, due, recorded); err != nil {
		return errors.Join(unreadable, err)
	}

	pending := q.pendingOf(due, recorded)
	if unreadable != nil {
		pending = append(pending, q.pendingEntries(recorded)...)
	}
	q.showPending(pending)

	failed := q.deliverPending(ctx, pending, recorded)
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

func (q *targetQueue) dueEntries(l *Log) []dueSet {
	var due []dueSet
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.Kind == KindClose || e.Kind == KindCorrection {
			due = append(due, dueSet{name: e.folder(), dueAt: q.books.now(), entry: e})
		}
	}
	return due
}

// dueDays returns the days up to yesterday, which is not due before its time.
func (q *targetQueue) dueDays(recorded map[string]*archive.DeliverySet) []dueSet {
	if !q.schedule.isDaily || q.target == nil {
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

	var due []dueSet
	for day := first; !day.After(yesterday); day = day.AddDate(0, 0, 1) {
		due = append(due, dueSet{name: dayName(day), dueAt: q.schedule.dueAt(day), day: day})
	}
	return due
}

// recordNew records the sets that have no row yet, and adds their rows to recorded.
func (q *targetQueue) recordNew(ctx context.Context, due []dueSet, recorded map[string]*archive.DeliverySet) error {
	var rows []archive.DeliverySet
	for _, d := range due {
		if recorded[d.name] == nil {
			rows = append(rows, archive.DeliverySet{
				Target: q.name, Name: d.name, Version: 1, ChangedAt: q.books.now(), DueAt: d.dueAt, Folder: d.name,
			})
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

// pendingOf returns what is due by now and not delivered, with the times since when it is. Whether it is due
// does not depend on what was recorded by a clock that may have been ahead.
func (q *targetQueue) pendingOf(due []dueSet, recorded map[string]*archive.DeliverySet) []dueSet {
	now := q.books.now()
	var pending []dueSet
	for _, d := range due {
		row := recorded[d.name]
		if !row.DeliveredAt.IsZero() || d.dueAt.After(now) {
			continue
		}

		if row.DueAt.Before(d.dueAt) {
			d.dueAt = row.DueAt
		}
		pending = append(pending, d)
	}
	return pending
}

// pendingEntries returns closings and corrections that are recorded as due. Without the log they cannot
// be tried.
func (q *targetQueue) pendingEntries(recorded map[string]*archive.DeliverySet) []dueSet {
	var pending []dueSet
	for name, row := range recorded {
		_, isDay := dayOf(name)
		if !isDay && row.DeliveredAt.IsZero() {
			pending = append(pending, dueSet{name: name, dueAt: row.DueAt})
		}
	}
	return pending
}

func (q *targetQueue) showPending(pending []dueSet) {
	q.pending.Set(float64(len(pending)))
	if len(pending) == 0 {
		q.oldest.Set(0)
		return
	}

	oldest := slices.MinFunc(pending, func(a, b dueSet) int { return a.dueAt.Compare(b.dueAt) })
	q.oldest.Set(float64(oldest.dueAt.UnixMilli()) / 1000)
}

// deliverPending tries sets, each after those that were tried longer ago. The failure of a set is recorded
// with it; the error is that of recording it, or of ctx.
func (q *targetQueue) deliverPending(ctx context.Context, pending []dueSet, recorded map[string]*archive.DeliverySet) error {
	waiting := map[string]dueSet{}
	var names []string
	for _, d := range pending {
		canBeTried := d.entry != nil || !d.day.IsZero()
		if canBeTried {
			waiting[d.name] = d
			names = append(names, d.name)
		}
	}

	tried, failures := 0, 0
	for _, name := range q.attempts.order(names, q.books.now()) {
		if tried == setsAtOnce || failures == failuresAtOnce {
			break
		}

		tried++
		q.attempts.begin(name)
		err := q.deliver(ctx, waiting[name])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failures++
			if err := q.fail(ctx, recorded[name], err); err != nil {
				return err
			}
			continue
		}

		q.attempts.succeeded(name)
		q.delivered.Inc()
		pending = slices.DeleteFunc(pending, func(d dueSet) bool { return d.name == name })
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

func (q *targetQueue) deliver(ctx context.Context, d dueSet) error {
	if d.entry == nil {
		return q.deliverDay(ctx, d)
	}

	s, err := q.books.entrySet(d.entry)
	if err != nil {
		return err
	}
	if err := q.send(ctx, d.name, s); err != nil {
		return err
	}
	return q.recordDelivered(ctx, d.name, d.name, s.reportAt(q.name, d.name))
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
func (q *targetQueue) deliverDay(ctx context.Context, d dueSet) error {
	row, err := q.books.archive.DeliverySet(ctx, q.name, d.name)
	if err != nil {
		return err
	}
	if row == nil || !row.DeliveredAt.IsZero() {
		return nil // another process was faster
	}

	s, err := q.books.daySet(ctx, d.day)
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
			return q.recordDelivered(ctx, d.name, row.Folder, planned)
		}
	}

	folder := row.Folder
	for range foldersAtOnce {
		report := s.reportAt(q.name, folder)
		isDone, err := q.recordPlan(ctx, d.name, folder, report)
		if err != nil || isDone {
			return err
		}

		err = q.send(ctx, folder, s)
		if err == nil {
			return q.recordDelivered(ctx, d.name, folder, report)
		}
		if !errors.Is(err, deliver.ErrDiffers) {
			return err
		}
		folder = nextFolder(d.name, folder)
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
