package failpoint

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

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
// in front of libc, and a control file that both map. Its methods are safe for concurrent use, but for LeaveRoom and
// Close. Nothing may be set after Close.
type Shim struct {
	library string
	file    string
	control []byte // the file, mapped
}

// NewShim builds the library in dir, an absolute path, with gcc and makes a control file that changes nothing.
func NewShim(ctx context.Context, dir string) (*Shim, error) {
	library, err := BuildShim(ctx, dir)
	if err != nil {
		return nil, err
	}
	return OpenShim(library, dir)
}

// BuildShim builds the library in dir, an absolute path, with gcc, and returns its file.
func BuildShim(ctx context.Context, dir string) (library string, err error) {
	library = filepath.Join(dir, "shim.so")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("shim: %w", err)
	}

	compile := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, "-x", "c", "-")
	compile.Stdin = bytes.NewReader(shimSource)
	if output, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("shim: %w (`make deps` installs gcc)\n%s", err, output)
	}

	return library, nil
}

// OpenShim returns a Shim with the library of BuildShim and a new control file in dir, which must exist. Until something
// is set it changes nothing.
func OpenShim(library, dir string) (*Shim, error) {
	control, file, err := mapNewFile(dir)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	return &Shim{library: library, file: file, control: control}, nil
}

func mapNewFile(dir string) (mapped []byte, name string, err error) {
	file, err := os.CreateTemp(dir, "shim-*.ctl")
	if err != nil {
		return nil, "", err
	}
	defer func() {
		_ = file.Close() // nothing was written by it
		if err != nil {
			_ = os.Remove(file.Name()) // the error counts
		}
	}()

	if err := file.Truncate(shimSize); err != nil {
		return nil, "", err
	}

	mapped, err = syscall.Mmap(int(file.Fd()), 0, shimSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)

	return mapped, file.Name(), err
}

// Env is what a program is started with to be under the shim, NAME=value.
func (s *Shim) Env() []string {
	return []string{"LD_PRELOAD=" + s.library, "SHIM_CONTROL=" + s.file}
}

// ShiftClock sets the programs' clocks d before the machine's, after it when negative, but for those that only measure.
func (s *Shim) ShiftClock(d time.Duration) { s.set(shiftAt, d.Microseconds()) }

// StopClock lets the programs' clocks stand still at a time after 1970, but for those that only measure. The zero time
// lets them go again.
func (s *Shim) StopClock(at time.Time) {
	if at.IsZero() {
		s.set(stoppedAt, 0)
		return
	}
	s.set(stoppedAt, at.UnixMicro())
}

// DelaySync makes every fsync and fdatasync take d longer; 0: no longer.
func (s *Shim) DelaySync(d time.Duration) { s.set(delayAt, d.Microseconds()) }

// LeaveRoom lets the programs write so many bytes more to files whose path contains the part, up to 255 bytes. Then the
// last write is cut short and those after it fail with ENOSPC.
func (s *Shim) LeaveRoom(bytes int64, part string) error {
	if len(part) > pathMax {
		return fmt.Errorf("shim: %q is too long", part)
	}
	copy(s.control[pathAt:], part+"\x00")
	s.set(roomAt, bytes)
	s.set(boundedAt, 1)
	return nil
}

// FreeRoom ends what LeaveRoom has begun.
func (s *Shim) FreeRoom() { s.set(boundedAt, 0) }

func (s *Shim) set(at int, value int64) {
	atomic.StoreInt64((*int64)(unsafe.Pointer(&s.control[at])), value) // the programs read it at any time
}

// Close gives the control file back; programs under the shim keep what was last set. Nothing may be set afterwards.
func (s *Shim) Close() error { return errors.Join(syscall.Munmap(s.control), os.Remove(s.file)) }

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
