package failpoint

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed c/shim.c
var shimSource []byte

// The control file: four numbers of 8 bytes and a text that ends with a zero.
const (
	shiftAt   = 0
	delayAt   = 8
	boundedAt = 16
	roomAt    = 24
	pathAt    = 32
	pathMax   = 255
	shimSize  = pathAt + pathMax + 1
)

// Shim runs dynamically linked programs with a wrong clock and on a slow or full disk, without root: a C library loaded
// in front of libc, and a control file that both map. It is safe for concurrent use.
type Shim struct {
	library string
	control *os.File
}

// NewShim builds the library in dir, an absolute path, with gcc and makes a control file that changes nothing.
func NewShim(ctx context.Context, dir string) (*Shim, error) {
	s := &Shim{library: filepath.Join(dir, "shim.so")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	compile := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", s.library, "-x", "c", "-")
	compile.Stdin = bytes.NewReader(shimSource)
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("shim: %w (`make deps` installs gcc)\n%s", err, output)
	}
	var err error
	if s.control, err = os.CreateTemp(dir, "shim-*.ctl"); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	return s, s.control.Truncate(shimSize)
}

// Env is what a program is started with to be under the shim, NAME=value.
func (s *Shim) Env() []string {
	return []string{"LD_PRELOAD=" + s.library, "SHIM_CONTROL=" + s.control.Name()}
}

// ShiftClock sets the programs' clocks d before the machine's, after it when negative, but for those that only measure.
func (s *Shim) ShiftClock(d time.Duration) error { return s.set(shiftAt, d.Microseconds()) }

// DelaySync makes every fsync and fdatasync take d longer; 0: no longer.
func (s *Shim) DelaySync(d time.Duration) error { return s.set(delayAt, d.Microseconds()) }

// LeaveRoom lets the programs write so many bytes more to files whose path contains the part, up to 255 bytes. Then the
// last write is cut short and those after it fail with ENOSPC.
func (s *Shim) LeaveRoom(bytes int64, part string) error {
	if len(part) > pathMax {
		return fmt.Errorf("shim: %q is too long", part)
	}
	text := make([]byte, pathMax+1)
	copy(text, part)
	if _, err := s.control.WriteAt(text, pathAt); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return errors.Join(s.set(roomAt, bytes), s.set(boundedAt, 1))
}

// FreeRoom ends what LeaveRoom has begun.
func (s *Shim) FreeRoom() error { return s.set(boundedAt, 0) }

func (s *Shim) set(at int64, value int64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(value))
	if _, err := s.control.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return nil
}

// Close gives the control file back; programs under the shim keep what was last set.
func (s *Shim) Close() error { return errors.Join(s.control.Close(), os.Remove(s.control.Name())) }
