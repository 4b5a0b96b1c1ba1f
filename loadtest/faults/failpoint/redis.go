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

	"vendorapi/internal/stack"
)

//go:embed c/shim.c
var shimSource []byte

// The control file: five numbers of 8 bytes and a text that ends with a zero.
const (
	shiftAt   = 0
	stoppedAt = 8
	delayAt   = 16
	boundedAt = 24
	roomAt    = 32
	pathAt    = 40
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
func NewShim(ctx context.Context, dir string) (s *Shim, err error) {
	s = &Shim{library: filepath.Join(dir, "shim.so")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	compile := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", s.library, "-x", "c", "-")
	compile.Stdin = bytes.NewReader(shimSource)
	if output, err := compile.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("shim: %w (`make deps` installs gcc)\n%s", err, output)
	}
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

// StopClock lets the programs' clocks stand still at a time after 1970, but for those that only measure. The zero time
// lets them go again.
func (s *Shim) StopClock(at time.Time) error {
	if at.IsZero() {
		return s.set(stoppedAt, 0)
	}
	return s.set(stoppedAt, at.UnixMicro())
}

// DelaySync makes every fsync and fdatasync take d longer; 0: no longer.
func (s *Shim) DelaySync(d time.Duration) error { return s.set(delayAt, d.Microseconds()) }

// LeaveRoom lets the programs write so many bytes more to files whose path contains the part, up to 255 bytes. Then the
// last write is cut short and those after it fail with ENOSPC.
func (s *Shim) LeaveRoom(bytes int64, part string) error {
	if len(part) > pathMax {
		return fmt.Errorf("shim: %q is too long", part)
	}
	return errors.Join(s.write(pathAt, []byte(part+"\x00")), s.set(roomAt, bytes), s.set(boundedAt, 1))
}

// FreeRoom ends what LeaveRoom has begun.
func (s *Shim) FreeRoom() error { return s.set(boundedAt, 0) }

func (s *Shim) set(at, value int64) error {
	return s.write(at, binary.NativeEndian.AppendUint64(nil, uint64(value)))
}

func (s *Shim) write(at int64, b []byte) error {
	if _, err := s.control.WriteAt(b, at); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return nil
}

// Close gives the control file back; programs under the shim keep what was last set.
func (s *Shim) Close() error { return errors.Join(s.control.Close(), os.Remove(s.control.Name())) }

// Position is an end of the append-only file of a Redis.
type Position struct {
	path string
	size int64
}

// EndOf is the present end of the file of a Redis in dir.
func EndOf(dir string) (Position, error) {
	path, err := stack.NewestAOF(dir)
	if err != nil {
		return Position{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Position{}, fmt.Errorf("append-only file: %w", err)
	}
	return Position{path, info.Size()}, nil
}

// CutSince removes a part of what a Redis that has ended wrote after the position, as a power failure does. draw says
// how many of the bytes go. Both results are 0 when the server has begun another file since.
func (p Position) CutSince(dir string, draw func(int64) int64) (cut, of int64, err error) {
	now, err := EndOf(dir)
	if err != nil || now.path != p.path || now.size <= p.size {
		return 0, 0, err
	}
	of = now.size - p.size
	cut = draw(of)
	return cut, of, os.Truncate(p.path, now.size-cut)
}

// transaction is the effect of a script as the server writes it.
const transaction = "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$11\r\nfaults:torn\r\n$4\r\nhalf\r\n*1\r\n$4\r\nEXEC\r\n"

// TearTail appends the first n bytes of a transaction (modulo its length, never all) to the file of a Redis that has
// ended, as a crash in the middle of a write does.
func TearTail(dir string, n int) error {
	path, err := stack.NewestAOF(dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(transaction[:1+n%(len(transaction)-1)])
	return errors.Join(err, file.Close())
}
