package archive

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// DeliverySet is the state of a set of files at a target: the row of delivery_sets with the highest
// version. The table's comments explain each column.
type DeliverySet struct {
	Target string `ch:"target String"`
	Name   string `ch:"name String"`

	Version   uint64    `ch:"version UInt64"`
	ChangedAt time.Time `ch:"changed_at DateTime64(3, 'UTC')"`

	DueAt    time.Time `ch:"due_at DateTime64(3, 'UTC')"`
	Folder   string    `ch:"folder String"`
	Manifest string    `ch:"manifest String"`
	Report   string    `ch:"report String"`

	DeliveredAt time.Time `ch:"delivered_at Nullable(DateTime64(3, 'UTC'))"` // zero: not yet
	AnnouncedAt time.Time `ch:"announced_at Nullable(DateTime64(3, 'UTC'))"` // zero: not yet
	Error       string    `ch:"error String"`
}

// latestFirst puts the row that counts first. Two processes may have written the same version: the one
// that got further counts.
const latestFirst = " ORDER BY target, name, version DESC, announced_at IS NULL, delivered_at IS NULL, changed_at DESC LIMIT 1 BY target, name"

// maxDeliverySets is more than the sets of ten targets in ten years.
const maxDeliverySets = 100_000

// DeliverySets lists the sets of every target by target and name, without their reports. It fails when there are more
// than maxDeliverySets: somebody has made them up.
func (a *Archive) DeliverySets(ctx context.Context) (all []DeliverySet, err error) {
	err = a.eachDeliverySet(ctx, "'' AS report", "", func(s *DeliverySet) { all = append(all, *s) })
	if err == nil && len(all) > maxDeliverySets {
		return nil, fmt.Errorf("clickhouse: delivery_sets has more than %d sets: remove those that are not yours", maxDeliverySets)
	}
	return all, err
}

// DeliverySet returns one set with its report; nil: nothing was recorded of it.
func (a *Archive) DeliverySet(ctx context.Context, target, name string) (found *DeliverySet, err error) {
	err = a.eachDeliverySet(ctx, "report", "WHERE target = {target:String} AND name = {name:String}", func(s *DeliverySet) { found = s },
		clickhouse.Named("target", target), clickhouse.Named("name", name))
	return found, err
}

func (a *Archive) eachDeliverySet(ctx context.Context, report, where string, take func(*DeliverySet), args ...any) error {
	query := "SELECT target, name, version, changed_at, due_at, folder, manifest, " + report +
		", ifNull(delivered_at, fromUnixTimestamp64Milli(0)), ifNull(announced_at, fromUnixTimestamp64Milli(0)), error FROM delivery_sets " +
		where + latestFirst + fmt.Sprintf(" LIMIT %d", maxDeliverySets+1)

	return a.Each(ctx, query, func(rows driver.Rows) error {
		s := &DeliverySet{}
		err := rows.Scan(&s.Target, &s.Name, &s.Version, &s.ChangedAt, &s.DueAt, &s.Folder, &s.Manifest, &s.Report,
			&s.DeliveredAt, &s.AnnouncedAt, &s.Error)
		if err != nil {
			return err
		}

		for _, at := range []*time.Time{&s.DeliveredAt, &s.AnnouncedAt} {
			if at.UnixMilli() == 0 {
				*at = time.Time{}
			}
		}

		take(s)

		return nil
	}, args...)
}

// RecordDeliverySets adds a row for each set. The same rows recorded again change nothing.
func (a *Archive) RecordDeliverySets(ctx context.Context, sets []DeliverySet) error {
	columns, err := deliverySets.values(reflect.ValueOf(sets))
	if err != nil {
		return err
	}
	return a.insertRows(ctx, deliverySets, columns, false)
}
