package dispatch

import "container/heap"

// alarm is when the scheduler wants to look at an endpoint again.
type alarm struct {
	at    int64 // ms
	index int   // in alarms, or notSet
}

const notSet = -1

// alarms are endpoints by the time of their alarm, the earliest first.
type alarms []*endpoint

// set changes an endpoint's alarm; never removes it.
func (a *alarms) set(e *endpoint, at int64) {
	isSet := e.alarm.index != notSet
	switch {
	case at == never && isSet:
		heap.Remove(a, e.alarm.index)
	case at == never:
	case isSet && at != e.alarm.at:
		e.alarm.at = at
		heap.Fix(a, e.alarm.index)
	case !isSet:
		e.alarm.at = at
		heap.Push(a, e)
	}
}

// first returns the endpoint whose alarm is the earliest, and when that is; never if there is none.
func (a alarms) first() (*endpoint, int64) {
	if len(a) == 0 {
		return nil, never
	}
	return a[0], a[0].alarm.at
}

// Len, Less, Swap, Push and Pop are heap.Interface's.

func (a alarms) Len() int           { return len(a) }
func (a alarms) Less(i, j int) bool { return a[i].alarm.at < a[j].alarm.at }

func (a alarms) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].alarm.index, a[j].alarm.index = i, j
}

func (a *alarms) Push(e any) {
	e.(*endpoint).alarm.index = len(*a)
	*a = append(*a, e.(*endpoint))
}

func (a *alarms) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	e.alarm.index = notSet

	return e
}
