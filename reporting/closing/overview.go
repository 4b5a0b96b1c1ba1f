package closing

import (
	"context"
	"time"
)

// Overview is the state of the books in short.
type Overview struct {
	Entries []EntryView `json:"entries"`

	// Foreign are the rows that do not belong to the log, in words.
	Foreign []string `json:"foreign"`

	Month  Month   `json:"month"`
	State  string  `json:"state"`
	Held   string  `json:"held,omitempty"` // the seal of the month's hold
	Checks []Check `json:"checks"`         // what has to be so before the month is held; empty when it is closed, or while rows are foreign

	// Task is in progress, or the last one; nil: there was none in 30 days.
	Task *Task `json:"task,omitempty"`
}

// EntryView is an entry of the log in short.
type EntryView struct {
	Sequence int       `json:"sequence"`
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Month    string    `json:"month,omitempty"`
	By       string    `json:"by"`
	Note     string    `json:"note,omitempty"`
	Seal     string    `json:"seal"`
}

// Overview returns the log, what is being decided, and the checklist of a month; the zero Month is the
// one that is held or can be closed next.
func (b *Books) Overview(ctx context.Context, m Month) (*Overview, error) {
	l, err := b.Read(ctx)
	if err != nil {
		return nil, err
	}
	if m.IsZero() {
		m = l.NextMonth(b.now())
	}

	o := &Overview{Entries: []EntryView{}, Foreign: []string{}, Month: m, State: l.State(m), Checks: []Check{}}
	for i := range l.Entries {
		o.Entries = append(o.Entries, viewOf(&l.Entries[i]))
	}
	o.Foreign = append(o.Foreign, l.Foreign.Named()...)
	if l.Held != nil && l.Held.Month == m {
		o.Held = l.Held.Seal
	}

	task, err := b.LastTask(ctx)
	if err != nil {
		return nil, err
	}
	if task.ID != "" {
		o.Task = &task
	}
	mayBeChecked := l.Foreign.AreNone() && !l.Closed(m)
	if mayBeChecked {
		o.Checks, err = b.Checklist(ctx, l, m)
	}
	return o, err
}

func viewOf(e *Entry) EntryView {
	v := EntryView{Sequence: e.Sequence, At: e.At, Kind: e.Kind, By: e.By, Note: e.Note, Seal: e.Seal}
	if !e.Month.IsZero() {
		v.Month = e.Month.String()
	}
	return v
}
