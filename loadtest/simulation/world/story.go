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
	lines []string
	all   bool // each line is shown at once, too
}

func (s *story) note(format string, args ...any) {
	line := time.Now().UTC().Format("01-02 15:04:05.0000 ") + fmt.Sprintf(format, args...)
	if s.all {
		fmt.Fprintln(os.Stderr, line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	if len(s.lines) > 2*storyKept {
		s.lines = append(s.lines[:0], s.lines[storyKept:]...)
	}
}

func (s *story) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	if len(lines) > storyKept {
		lines = lines[len(lines)-storyKept:]
	}
	return strings.Join(lines, "\n")
}

// logger is a log whose warnings are lines of the story.
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
