package closing

import (
	"context"
	"errors"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// tasksOf carries tasks out as another process would.
func (e *env) tasksOf(b *Books) *Tasks {
	e.T.Helper()
	tasks := NewTasks(b)
	go tasks.Run(e.T.Context())
	return tasks
}

var somebody = Person{Name: "ayse", Credential: "session"}

// A request waits for its decision; what takes longer goes on, and every process sees how far it is.
func TestTasks_GoOnInTheBackground(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	tasks := e.tasksOf(e.books)
	hold := Decision{Kind: KindHold, Month: october, By: "ayse", Note: "seen"}

	e.clock = october.Next().Time
	task, err := tasks.Start(t.Context(), somebody, hold)
	if !errors.Is(err, ErrRefused) || !task.HasEnded() || task.Refusal == "" {
		t.Errorf("a hold that is refused: %+v, %v", task, err)
	}

	last, err := e.books.LastTask(t.Context())
	testenv.Must(t, err)
	if last.Refusal != task.Refusal {
		t.Errorf("why is not noted: %+v", last)
	}

	e.clock = october.Next().Add(Grace + time.Hour)
	task, err = tasks.Start(t.Context(), somebody, hold)
	testenv.Must(t, err)
	if !task.HasEnded() || task.Sequence != 1 || task.Seal == "" {
		t.Errorf("a hold: %+v", task)
	}

	reached, proceed := make(chan struct{}), make(chan struct{})
	e.books.step = func(name string) {
		if name == "calculated" {
			close(reached)
			<-proceed
		}
	}

	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-reached
		leave()
	}()

	task, err = tasks.Start(ctx, somebody, Decision{Kind: KindClose, Month: october, By: "ece"})
	testenv.Must(t, err)
	if task.HasEnded() || task.By != "ece" {
		t.Errorf("a closing that somebody does not wait for: %+v", task)
	}

	other := e.newBooks()
	e.Await("another process sees the step", func() bool {
		last, err := other.LastTask(t.Context())
		testenv.Must(t, err)
		return last.ID == task.ID && !last.HasEnded() && last.Step == "2025-10: calculating the reports"
	})

	// While it is in progress nobody else decides.
	release := Decision{Kind: KindRelease, Month: october, By: "ayse"}
	_, err = tasks.Start(ctx, somebody, release) // ctx has ended, so this does not wait for its turn
	if !errors.Is(err, ErrRefused) {
		t.Errorf("here: %v", err)
	}
	_, err = e.tasksOf(other).Start(t.Context(), somebody, release)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("elsewhere: %v", err)
	}

	close(proceed)
	e.Await("it is closed", func() bool {
		last, err := other.LastTask(t.Context())
		testenv.Must(t, err)
		return last.ID == task.ID && last.HasEnded() && last.Sequence == 2
	})

	if !e.log().Closed(october) {
		t.Error("October is not closed")
	}
}

// A process that was paused for long and goes on leaves alone what a later task has noted since.
func TestTasks_APausedProcessOverwritesNoLaterTask(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.clock = october.Next().Add(Grace + time.Hour)
	testenv.Must(t, decide(t.Context(), e.books, KindHold, october, "ayse", "seen"))
	later := `{"id":"LATER","kind":"release","by":"efe"}`
	e.books.step = func(name string) {
		if name != "calculated" {
			return
		}

		e.Await("the later task has begun", func() bool {
			noted, err := e.Ledger.Books.Progress(t.Context())
			testenv.Must(t, err)
			return e.Ledger.Books.SetProgress(t.Context(), noted, later) == nil
		})
	}

	task, err := e.tasksOf(e.books).Start(t.Context(), somebody, Decision{Kind: KindClose, Month: october, By: "ece"})

	testenv.Must(t, err)
	if !task.HasEnded() || task.Sequence != 2 {
		t.Errorf("%+v", task)
	}

	noted, err := e.Ledger.Books.Progress(t.Context())
	testenv.Must(t, err)
	if noted != later {
		t.Errorf("noted is %s", noted)
	}
}

func TestTask_IsInterruptedWhenItsProcessIsSilent(t *testing.T) {
	t.Parallel()

	now := time.Now()
	for _, c := range []struct {
		seen, ended time.Time
		want        bool
	}{
		{now, time.Time{}, false},
		{now.Add(-29 * time.Second), time.Time{}, false},
		{now.Add(-31 * time.Second), time.Time{}, true},
		{now.Add(-time.Hour), now.Add(-time.Hour), false},
	} {
		task := Task{Seen: c.seen, Ended: c.ended}
		if got := task.IsInterrupted(now); got != c.want {
			t.Errorf("seen %s ago, ended %v: %v", now.Sub(c.seen), !c.ended.IsZero(), got)
		}
	}
}
