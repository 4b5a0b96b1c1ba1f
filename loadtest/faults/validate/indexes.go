package validate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// orderIndex is a sorted set of orders, with those that it must list.
type orderIndex struct {
	name      string // timers, or the status whose list of jobs it is
	key       string
	partition partition
	wanted    map[delivery.OrderID]bool
}

// inconsistentIndexes compares the timers and the lists of jobs of a settled ledger with all of its orders. An order that
// has not ended has a timer and is on the list of its status, a cancelled one is on its list, and nothing else is listed.
func (r *redisReader) inconsistentIndexes(ctx context.Context, orders []*delivery.Order) ([]Violation, error) {
	statuses := make(map[delivery.OrderID]delivery.Status, len(orders))
	for _, o := range orders {
		statuses[o.ID] = o.Status
	}

	indexes := r.indexesOf(orders)
	listed := make([]*redis.StringSliceCmd, len(indexes))
	pipe := r.client.Pipeline()
	for i, x := range indexes {
		listed[i] = pipe.ZRange(ctx, x.key, 0, -1)
	}

	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("reading indexes: %w", err)
	}

	var violations []Violation
	for i, x := range indexes {
		violations = append(violations, x.compare(listed[i].Val(), statuses)...)
	}

	return violations, nil
}

// indexesOf returns the timers of every partition, and for each fleet of the orders its lists of jobs in every partition,
// also those that must be empty.
func (r *redisReader) indexesOf(orders []*delivery.Order) []*orderIndex {
	var indexes []*orderIndex
	byKey := make(map[string]*orderIndex)
	add := func(name, key string, p partition) {
		x := &orderIndex{name: name, key: key, partition: p, wanted: make(map[delivery.OrderID]bool)}
		indexes = append(indexes, x)
		byKey[key] = x
	}

	for _, p := range r.partitions {
		add("timers", p.timers(), p)
		for _, fleet := range fleetsOf(orders) {
			for status := delivery.Searching; status <= delivery.Cancelled; status++ {
				add(status.String(), p.jobs(status, fleet), p)
			}
		}
	}

	for _, o := range orders {
		p := r.partitions[o.ID.Partition()]
		hasEnded := o.Status.Terminal()
		if !hasEnded {
			byKey[p.timers()].wanted[o.ID] = true
		}

		jobs := p.jobs(o.Status, o.Fleet.ID)
		hasList := byKey[jobs] != nil
		if !hasList { // its record is damaged, and says a status that there is not
			add(o.Status.String(), jobs, p)
		}

		if !hasEnded || o.Status == delivery.Cancelled {
			byKey[jobs].wanted[o.ID] = true
		}
	}

	return indexes
}

// fleetsOf returns the fleets that orders have, each once.
func fleetsOf(orders []*delivery.Order) []delivery.FleetID {
	var fleets []delivery.FleetID
	seen := make(map[delivery.FleetID]bool)
	for _, o := range orders {
		if !seen[o.Fleet.ID] {
			seen[o.Fleet.ID] = true
			fleets = append(fleets, o.Fleet.ID)
		}
	}
	return fleets
}

// compare returns what is wrong with an index that has these members.
func (x *orderIndex) compare(members []string, statuses map[delivery.OrderID]delivery.Status) []Violation {
	var violations []Violation
	isListed := make(map[delivery.OrderID]bool)
	for _, member := range members {
		order, ok := x.partition.orderOf(member)
		status, exists := statuses[order]
		isListed[order] = true
		switch {
		case !ok:
			violations = append(violations, x.violation(order, fmt.Sprintf("has %q, which names no order", member)))
		case !exists:
			violations = append(violations, x.violation(order, "names an order that is not there"))
		case !x.wanted[order]:
			violations = append(violations, x.violation(order, "names an order that is "+status.String()))
		}
	}

	var missing []Violation
	for order := range x.wanted {
		if !isListed[order] {
			missing = append(missing, x.violation(order, "lacks an order that is "+statuses[order].String()))
		}
	}

	slices.SortFunc(missing, func(a, b Violation) int { return strings.Compare(a.Subjects[0], b.Subjects[0]) })

	return append(violations, missing...)
}

func (x *orderIndex) violation(order delivery.OrderID, says string) Violation {
	return Violation{Invariant: IndexInconsistent, Subjects: []string{order.String()}, Text: x.name + " " + says}
}
