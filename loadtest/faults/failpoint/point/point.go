// Package point names the failpoints: requests of the programs at which a fault can strike. Only the
// files of loadtest/faults/testdata/failpoints use it, which no program that is shipped has in it. They
// let such a request carry the failpoint's mark, by which a proxy recognises it on its way.
package point

import (
	"context"
	"fmt"
	"slices"
)

// A Point is the name of a failpoint.
type Point string

// The failpoints.
const (
	CreateOrder  Point = "create-order"
	CancelOrder  Point = "cancel-order"
	Report       Point = "report"        // of a fleet, or of the sandbox courier
	Step         Point = "step"          // what the owner of a partition has decided; not a mere renewal of its token
	ChangeOrders Point = "change-orders" // a step that changes or lists orders
	Spill        Point = "spill"         // a step that schedules events that are not settled
)

var all = []Point{CreateOrder, CancelOrder, Report, Step, ChangeOrders, Spill}

// UnmarshalText refuses a name that no failpoint has.
func (p *Point) UnmarshalText(text []byte) error {
	if !slices.Contains(all, Point(text)) {
		return fmt.Errorf("there is no failpoint %q", text)
	}
	*p = Point(text)
	return nil
}

// Mark returns what the request has at the end of a key or of an argument.
func (p Point) Mark() string { return "failpoint:" + string(p) }

type contextKey struct{}

// In returns a context whose request is to carry the mark.
func In(ctx context.Context, p Point) context.Context { return context.WithValue(ctx, contextKey{}, p) }

// Of returns the failpoint of the context's request, or nothing.
func Of(ctx context.Context) Point {
	p, _ := ctx.Value(contextKey{}).(Point)
	return p
}
