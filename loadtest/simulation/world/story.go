package world

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// storyKept is how many of the last lines a failure shows.
const storyKept = 40

// A story is what has happened last.
type story struct {
	mu    sync.Mutex
	lines []line
	all   bool // each line is shown at once, too
}

// line is a line that is composed when somebody reads it: few are ever read.
type line struct {
	at     time.Time
	format string
	args   []any
}

// String returns the line with its time on the bubble's clock.
func (l line) String() string {
	return l.at.UTC().Format("01-02 15:04:05.0000 ") + fmt.Sprintf(l.format, l.args...)
}

// note adds a line, which is formatted when it is read. So the arguments must not change after the call.
func (s *story) note(format string, args ...any) {
	l := line{at: time.Now(), format: format, args: args}
	if s.all {
		fmt.Fprintln(os.Stderr, l)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, l)
	if len(s.lines) > 2*storyKept {
		s.lines = append(s.lines[:0], s.lines[storyKept:]...)
	}
}

// last returns the story's last lines, at most storyKept.
func (s *story) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, l := range s.lines[max(0, len(s.lines)-storyKept):] {
		fmt.Fprintln(&text, l)
	}
	return text.String()
}

// logger returns a log whose warnings and errors become lines of the story. Lines of lower levels are dropped.
func (s *story) logger(name string) *slog.Logger {
	return slog.New(&storyHandler{story: s, name: name})
}

type storyHandler struct {
	story *story
	name  string
}

func (h *storyHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h *storyHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%.200v", a.Key, a.Value)
		return true
	})
	h.story.note("    %s logs: %s%s", h.name, r.Message, b.String())
	return nil
}

func (h *storyHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *storyHandler) WithGroup(string) slog.Handler      { return h }
