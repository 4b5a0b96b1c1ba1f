package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// Reports of an order besides its statuses are bounded, or a fleet could lengthen its record without
// end: other couriers, estimates and failures together, and estimates by themselves, so that there is
// room for the others whatever a fleet's clock computes. An order has so many versions more at most,
// which leaves some of the 255 sequences.
const (
	MaxSideReports = 100
	MaxEstimates   = 80
)

// Report appends a courier's update, unless the order holds it, and notes it in the order, in one
// script (decisions, "Private APIs"). It returns the order's status as it was. ORDER_NOT_FOUND, also for another
// fleet's; ORDER_ENDED with Status, except for the first Delivered; JOB_NOT_AVAILABLE with Status
// for an acceptance or swap; JOB_TAKEN with Courier; TOO_MANY_REPORTS.
func (l *Orders) Report(ctx context.Context, u delivery.Update, now time.Time) (delivery.Status, error) {
	r, ok := l.core.PartitionOfOrder(u.Order)
	if !ok {
		return 0, orderNotFound()
	}

	var courier []byte
	if u.Kind != delivery.KindStatus {
		courier = core.AppendAccepted(nil, u.Courier)
	}

	reply, err := l.core.RunText(ctx, "report_update", []string{r.Order(u.Order.Digest()), r.Key(core.KindUpdates)},
		u.Fleet[:], core.DayOf(u.Order), int(u.Kind), int(u.Status), now.UnixMilli(), core.EncodeUpdate(&u),
		courier, MaxSideReports, core.AppendLocation(nil, delivery.Location{At: u.At}), MaxEstimates, core.Millis(u.ETA))
	if err != nil {
		return 0, err
	}

	name, record, _ := strings.Cut(reply, "\n")
	if name == "not_found" {
		return 0, orderNotFound()
	}
	if (name == "taken" || name == "known") && len(record) == 1 {
		return delivery.Status(record[0]), nil
	}

	o, err := core.DecodeOrder(record, r.Number)
	if err != nil {
		return 0, err
	}

	return o.Status, refusedReport(name, o, &u)
}

func refusedReport(reply string, o *delivery.Order, u *delivery.Update) error {
	switch {
	case reply == "ended" && u.Kind != delivery.KindStatus:
		return &delivery.Error{Code: delivery.CodeJobNotAvailable, Status: o.Status, Message: "the order is " + o.Status.String()}
	case reply == "ended" && (o.Status != u.Status || o.Changes[len(o.Changes)-1].Failure != u.Failure):
		left := "only a delivery can still be reported of it"
		if o.Status == delivery.Delivered {
			left = "nothing more can be reported of it"
		}
		return &delivery.Error{Code: delivery.CodeOrderEnded, Status: o.Status, Message: "the order is " + o.Status.String() + "; " + left}
	case reply == "unassigned":
		return &delivery.Error{Code: delivery.CodeJobNotAvailable, Status: o.Status, Message: "nobody has accepted the order yet"}
	case reply == "taken_by_another":
		who := o.Accepted
		if who.IsZero() {
			who = o.Courier
		}
		name := delivery.AbbreviateName(who.Name)
		return &delivery.Error{Code: delivery.CodeJobTaken, Courier: name, Message: name + " has accepted the order"}
	case reply == "too_many":
		return delivery.Refuse(delivery.CodeTooManyReports, "other couriers, estimates and failures were reported of this order %d times", MaxSideReports)
	}

	return nil
}

// Position is one line of a batch of couriers' positions.
type Position struct {
	Order    delivery.OrderID
	Location delivery.Location
}

// PositionsAtOnce keeps one script below a millisecond: others' orders wait for it.
const PositionsAtOnce = 200

// ReportLocations keeps the newest position of each order. ignored counts positions
// that are older, or of orders that are unknown, ended or another fleet's.
func (l *Orders) ReportLocations(ctx context.Context, fleet delivery.FleetID, positions []Position, now time.Time) (ignored int, err error) {
	var calls []core.Call
	open := make(map[int]int) // by partition, the call that takes more; begins with 1
	for _, p := range positions {
		r, ok := l.core.PartitionOfOrder(p.Order)
		if !ok {
			continue
		}

		n := open[r.Number] - 1
		if n < 0 || len(calls[n].Keys) == PositionsAtOnce {
			n = len(calls)
			calls = append(calls, core.Call{Args: []any{fleet[:], now.UnixMilli()}})
			open[r.Number] = n + 1
		}

		c := &calls[n]
		c.Keys = append(c.Keys, r.Order(p.Order.Digest()))
		c.Args = append(c.Args, core.AppendLocation(core.DayOf(p.Order), p.Location))
	}

	replies, err := l.core.RunAll(ctx, "report_locations", calls)
	if err != nil {
		return 0, err
	}

	kept := 0
	for _, reply := range replies {
		n, err := reply.Int()
		if err != nil {
			return 0, fmt.Errorf("script report_locations: %w", err)
		}
		kept += n
	}

	return len(positions) - kept, nil
}

// jobCursor is where a listing goes on: partition, score, member.
type jobCursor struct {
	Partition int
	score     int64
	member    string
}

func ParseJobCursor(text string) (jobCursor, error) {
	if text == "" {
		return jobCursor{}, nil
	}

	var c jobCursor
	var member []byte
	_, err := fmt.Sscanf(text, "%d.%d.%x", &c.Partition, &c.score, &member)
	c.member = string(member)
	if err == nil && c.Partition >= 0 && c.String() == strings.ToLower(text) {
		return c, nil
	}

	return jobCursor{}, core.InvalidCursor()
}

func (c jobCursor) String() string {
	return fmt.Sprintf("%d.%d.%x", c.Partition, c.score, c.member)
}

// Jobs lists a fleet's orders in a status that is not terminal, or Cancelled, by
// partition and age. next is empty at the end. An order that changes between pages
// appears at most once in each status. With ErrIncomplete the orders are those of the partitions that
// answer, and next is valid.
func (l *Orders) Jobs(ctx context.Context, fleet delivery.FleetID, status delivery.Status, cursor string, limit int) (orders []*delivery.Order, next string, err error) {
	ids, next, incomplete := l.JobIDs(ctx, fleet, status, cursor, limit)
	if incomplete != nil && !errors.Is(incomplete, core.ErrIncomplete) {
		return nil, "", incomplete
	}

	orders, err = l.ReadJobs(ctx, ids, status)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, "", err
	}
	return orders, next, cmp.Or(incomplete, err)
}

// JobIDs finds a page of Jobs without reading the orders, so that a caller can charge for
// them first. It asks partitions for their sizes, 256 in a round trip, and then lists those
// that are not empty. A poll that finds nothing is one ZCARD for each partition: with 16
// partitions one round trip, with 1,024 four, and about half a millisecond of Redis.
//
// A partition that does not answer is left out, and the error of the page on which its jobs would
// have been is ErrIncomplete: ids and next are valid beside it.
func (l *Orders) JobIDs(ctx context.Context, fleet delivery.FleetID, status delivery.Status, cursor string, limit int) (ids []delivery.OrderID, next string, err error) {
	after, err := ParseJobCursor(cursor)
	if err != nil {
		return nil, "", err
	}

	last := after
	var missing core.MissingParts
	remaining := l.core.Partitions[min(after.Partition, len(l.core.Partitions)):]
	for partitions := range slices.Chunk(remaining, core.PartitionsCounted) {
		sizes, errs := core.PipelinedEach(ctx, l.core.Redis, "counting jobs", partitions, func(pipe redis.Pipeliner, p core.Partition) func() int64 {
			return pipe.ZCard(ctx, p.Jobs(status, fleet)).Val
		})

		for len(partitions) > 0 {
			// One more than the page takes tells that there is a following page.
			wanted := limit + 1 - len(ids)
			n := core.SetsHolding(sizes, int64(wanted))
			missing.Note(errs[:n])
			listed := make([]jobRange, n)
			for i := range listed {
				listed[i] = jobRange{key: partitions[i].Jobs(status, fleet), isEmpty: sizes[i] == 0}
				if partitions[i].Number == after.Partition {
					listed[i].after = after
				}
			}

			found, problems := l.jobsIn(ctx, listed, wanted)

			for i, jobs := range found {
				missing.Add(problems[i])
				for _, z := range jobs {
					if len(ids) == limit {
						return ids, last.String(), l.core.ErrOfRest(&missing, cursor != "")
					}
					member := z.Member.(string)
					ids = append(ids, partitions[i].OrderOfMember(member))
					last = jobCursor{Partition: partitions[i].Number, score: int64(z.Score), member: member}
				}
			}

			partitions, sizes, errs = partitions[n:], sizes[n:], errs[n:]
		}
	}

	err = l.core.ErrOfRest(&missing, cursor != "")
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, "", err
	}

	return ids, "", err
}

// ReadJobs reads the orders that JobIDs found. Orders that have left the status since are
// left out, and those that cannot be read, which is logged. With ErrIncomplete the orders lack those of
// partitions that do not answer.
func (l *Orders) ReadJobs(ctx context.Context, ids []delivery.OrderID, status delivery.Status) ([]*delivery.Order, error) {
	orders, unreadable, err := l.GetReadable(ctx, ids)
	if err != nil && !errors.Is(err, core.ErrIncomplete) {
		return nil, err
	}

	for i, id := range ids {
		p, ok := l.core.PartitionOfOrder(id)
		wasRead := err == nil || orders[i] != nil || unreadable[id] != nil
		if ok && wasRead {
			l.core.NoteReadability(p.Order(id.Digest()), unreadable[id])
		}
	}

	return slices.DeleteFunc(orders, func(o *delivery.Order) bool { return o == nil || o.Status != status }), err
}

// jobRange is what follows a job in a partition's list of a fleet's jobs.
type jobRange struct {
	key     string
	after   jobCursor // without a member: the whole list
	isEmpty bool      // nothing has to be read
}

// page asks for entries from an offset on, beginning with those that have the cursor's score.
func (r jobRange) page(offset, count int) *redis.ZRangeBy {
	return &redis.ZRangeBy{
		Min: strconv.FormatInt(r.after.score, 10), Max: "+inf",
		Offset: int64(offset), Count: int64(count),
	}
}

// jobsIn reads at most limit jobs of each range. All ranges are read in one round trip. Only
// one that has more than limit jobs of the cursor's millisecond needs others. errs has why a range
// could not be read; nothing of it is in found.
func (l *Orders) jobsIn(ctx context.Context, ranges []jobRange, limit int) (found [][]redis.Z, errs []error) {
	pages, errs := core.PipelinedEach(ctx, l.core.Redis, "listing jobs", ranges, func(pipe redis.Pipeliner, r jobRange) func() []redis.Z {
		if r.isEmpty {
			return nil
		}
		return pipe.ZRangeByScoreWithScores(ctx, r.key, r.page(0, limit)).Val
	})

	found = make([][]redis.Z, len(ranges))
	for i, page := range pages {
		if errs[i] == nil {
			found[i], errs[i] = l.jobsAfter(ctx, ranges[i], page, limit)
		}
	}

	return found, errs
}

// jobsAfter returns at most limit jobs of a range. page is the first page from the cursor's
// millisecond on, so it repeats jobs that earlier pages had.
func (l *Orders) jobsAfter(ctx context.Context, r jobRange, page []redis.Z, limit int) (found []redis.Z, err error) {
	for offset := 0; ; {
		for _, z := range page {
			wasListed := int64(z.Score) == r.after.score && z.Member.(string) <= r.after.member
			if !wasListed && len(found) < limit {
				found = append(found, z)
			}
		}

		if len(page) < limit || len(found) == limit {
			return found, nil
		}

		offset += len(page)
		page, err = l.core.Redis.ZRangeByScoreWithScores(ctx, r.key, r.page(offset, limit)).Result()
		if err != nil {
			return nil, core.Failed("listing jobs", err)
		}
	}
}
