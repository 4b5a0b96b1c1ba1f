package closing

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/operations"
)

// How often a task says that it is at work, and after how long it counts as interrupted.
const (
	taskSeenEvery      = 2 * time.Second
	taskInterruptedFor = 30 * time.Second
)

// Task is a decision that is being carried out, or the last one that was. It is kept in Redis, so
// that every process can show it.
type Task struct {
	ID    string    `json:"id"`
	Kind  string    `json:"kind"`
	Month Month     `json:"month,omitzero"`
	By    string    `json:"by"`
	Began time.Time `json:"began"`

	// Seen is when the process was last at work, and Step what it is doing.
	Seen time.Time `json:"seen"`
	Step string    `json:"step,omitempty"`

	// Ended is zero while the task is in progress.
	Ended time.Time `json:"ended,omitzero"`

	// Refusal says why nothing was done. Failure says that something went wrong, so that it is not
	// known whether it was done: the log of the books shows it.
	Refusal string `json:"refusal,omitempty"`
	Failure string `json:"failure,omitempty"`

	// Sequence and Seal are the entry's.
	Sequence int    `json:"sequence,omitempty"`
	Seal     string `json:"seal,omitempty"`

	// Booked and Left count the orders that a correction has booked, and those that a person has to
	// decide on. Lines name the first of them.
	Booked int      `json:"booked,omitempty"`
	Left   int      `json:"left,omitempty"`
	Lines  []string `json:"lines,omitempty"`
}

// linesKept bounds Lines.
const linesKept = 100

// HasEnded reports whether the task is no longer in progress.
func (t *Task) HasEnded() bool { return !t.Ended.IsZero() }

// IsInterrupted reports whether the process that carried the task out has died. What it was to
// decide was decided or not, and can be decided again if not. now is Redis's time, as Seen is.
func (t *Task) IsInterrupted(now time.Time) bool {
	return !t.HasEnded() && now.Sub(t.Seen) > taskInterruptedFor
}

// Tasks carries decisions out, one at a time in all processes, in the background: a closing can take
// longer than a request may.
type Tasks struct {
	books *Books
	queue chan *startedTask
}

// startedTask is a decision that is being carried out. How far it has got is written to Redis. A write that fails
// is logged, and the task goes on.
type startedTask struct {
	books    *Books
	decision Decision
	who      Person

	// before is the ID of the task that was in Redis when this one began, which it may overwrite; empty: none.
	before string

	mu   sync.Mutex
	task Task

	// ended is closed once task and err are final.
	ended chan struct{}
	err   error
}

// NewTasks returns the tasks of books. Nothing is carried out before Run.
func NewTasks(b *Books) *Tasks { return &Tasks{books: b, queue: make(chan *startedTask)} }

// Run carries out what is started until ctx ends, and what is in progress then is stopped.
func (t *Tasks) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case started := <-t.queue:
			t.carryOut(ctx, started)
			close(started.ended)
		}
	}
}

// Start queues a decision and waits for its end as long as ctx lasts. When ctx ends first, it returns the
// task in progress and no error (LastTask shows its end), or a refusal if another decision is still being
// carried out. After an error a task that has not ended never began.
func (t *Tasks) Start(ctx context.Context, who Person, d Decision) (Task, error) {
	now := t.books.ledger.Now()
	inProgress := Task{ID: rand.Text(), Kind: d.Kind, Month: d.Month, By: d.By, Began: now, Seen: now}
	started := &startedTask{books: t.books, decision: d, who: who, task: inProgress, ended: make(chan struct{})}
	select {
	case t.queue <- started:
	case <-ctx.Done():
		return Task{}, t.busy(context.WithoutCancel(ctx))
	}

	select {
	case <-started.ended:
		return started.task, started.err
	case <-ctx.Done():
		return inProgress, nil
	}
}

// busy refuses what would have to wait for the task in progress.
func (t *Tasks) busy(ctx context.Context) error {
	last, err := t.books.LastTask(ctx)
	if err != nil {
		return err
	}

	isWorking := last.ID != "" && !last.HasEnded()
	if !isWorking {
		return fmt.Errorf("%w: decisions are not carried out at the moment", delivery.ErrUnavailable)
	}
	return refuse("%s is carrying out a %s since %s: wait until it has ended", last.By, last.Kind, last.Began.In(delivery.Istanbul).Format("15:04:05"))
}

// LastTask returns the task in progress, or the last one in 30 days; the zero Task: there was none.
func (b *Books) LastTask(ctx context.Context) (Task, error) {
	var task Task
	text, err := b.ledger.Books.Progress(ctx)
	if err != nil || text == "" {
		return task, err
	}
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return task, fmt.Errorf("the progress of the books: %w", err)
	}
	return task, nil
}

func (t *Tasks) carryOut(ctx context.Context, s *startedTask) {
	s.err = t.books.ledger.Books.Exclusively(ctx, "decision", func(ctx context.Context) error {
		before, err := t.books.ledger.Books.Progress(ctx)
		if err != nil {
			return err
		}

		s.before = taskID(before)
		stop := s.keepAlive(ctx)
		outcome, err := t.books.audited(ctx, s.who, s.decision, func(step string) { s.step(ctx, step) })
		stop()

		s.end(context.WithoutCancel(ctx), outcome, err)

		return err
	})

	if errors.Is(s.err, operations.ErrBusy) {
		s.err = t.busy(ctx)
	}

	if s.err != nil && !IsRefusal(s.err) {
		t.books.log.Error("a decision about the books failed", "kind", s.decision.Kind, "by", s.decision.By, "error", s.err)
	}
}

// taskID returns the ID in the text of a task; empty: it is none.
func taskID(text string) string {
	var task Task
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return ""
	}
	return task.ID
}

// errLaterTask reports that another task has begun since: this process was paused for so long that its
// claim has ended.
var errLaterTask = errors.New("a later task is noted already")

// keepAlive renews Task.Seen every taskSeenEvery until stop is called, which waits for the last write.
func (s *startedTask) keepAlive(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		ticks := time.NewTicker(taskSeenEvery)
		defer ticks.Stop()
		for {
			s.change(ctx, func(*Task) {})
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})

	return func() {
		cancel()
		renewing.Wait()
	}
}

func (s *startedTask) step(ctx context.Context, step string) {
	s.change(ctx, func(t *Task) { t.Step = step })
}

// end says how the task ended.
func (s *startedTask) end(ctx context.Context, outcome Outcome, err error) {
	s.change(ctx, func(t *Task) {
		t.Ended = s.books.ledger.Now()
		switch {
		case err == nil:
		case IsRefusal(err):
			t.Refusal = err.Error()
		case errors.Is(err, delivery.ErrUnavailable), errors.Is(err, context.Canceled):
			t.Failure = "Redis or ClickHouse did not answer in time, or this process was stopped"
		default:
			t.Failure = "it failed, and the log of reporting says why"
		}

		if outcome.Entry != nil {
			t.Sequence, t.Seal = outcome.Entry.Sequence, outcome.Entry.Seal
		}

		t.Booked, t.Left = len(outcome.Booked), len(outcome.Waiting)
		for i := range outcome.Booked {
			t.addLine("booked: " + outcome.Booked[i].String())
		}

		for i := range outcome.Waiting {
			t.addLine("not booked: " + outcome.Waiting[i].String())
		}
	})
}

func (t *Task) addLine(line string) {
	if len(t.Lines) < linesKept {
		t.Lines = append(t.Lines, line)
	}
}

func (s *startedTask) change(ctx context.Context, apply func(*Task)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	apply(&s.task)
	s.task.Seen = s.books.ledger.Now()

	if err := s.write(ctx); err != nil && ctx.Err() == nil {
		s.books.log.Warn("the progress of the books cannot be noted", "error", err)
	}
}

// write replaces what is noted of this task, or of the one before. What a later one has noted stays.
func (s *startedTask) write(ctx context.Context) error {
	books := s.books.ledger.Books
	text, err := json.Marshal(&s.task)
	if err != nil {
		return err
	}
	noted, err := books.Progress(ctx)
	if err != nil {
		return err
	}

	id := taskID(noted)
	isLater := id != s.task.ID && id != s.before
	if isLater {
		return errLaterTask
	}

	return books.SetProgress(ctx, noted, string(text))
}
