package world

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// ioTimeout bounds a read from the server and a write to it, by the machine's clock: a server that takes longer has
// stopped.
const ioTimeout = time.Minute

// conn is a connection to a Unix socket that waits in the kernel, and not in Go's scheduler: while the server answers
// nobody else may act. One thread then goes to and fro with the server, which is the greater part of a step's costs.
type conn struct {
	fd int
}

// dial connects to the Unix socket at a path.
func dial(path string) (net.Conn, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}

	timeout := syscall.NsecToTimeval(int64(ioTimeout))
	err = errors.Join(
		syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &timeout),
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &timeout),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", path, err), syscall.Close(fd))
	}

	return &conn{fd: fd}, nil
}

// Read blocks its thread until the server has sent something, for ioTimeout at most. It returns io.EOF once the server has
// closed the connection.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.transfer(syscall.SYS_READ, b)
	if n == 0 && err == nil && len(b) > 0 {
		return 0, io.EOF
	}
	return n, err
}

// Write blocks its thread until all of b is written, for ioTimeout at most without progress.
func (c *conn) Write(b []byte) (written int, err error) {
	for written < len(b) && err == nil {
		var n int
		n, err = c.transfer(syscall.SYS_WRITE, b[written:])
		written += n
	}
	return written, err
}

// transfer makes a system call of which Go's scheduler does not learn.
func (c *conn) transfer(call uintptr, b []byte) (int, error) {
	for len(b) > 0 {
		n, _, failed := syscall.RawSyscall(call, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch failed {
		case 0:
			return int(n), nil
		case syscall.EINTR: // a signal came
		case syscall.EAGAIN:
			return 0, os.ErrDeadlineExceeded
		default:
			return 0, failed
		}
	}

	return 0, nil
}

func (c *conn) Close() error { return syscall.Close(c.fd) }

func (c *conn) LocalAddr() net.Addr  { return &net.UnixAddr{Net: "unix"} }
func (c *conn) RemoteAddr() net.Addr { return &net.UnixAddr{Net: "unix"} }

// SetDeadline does nothing: the clock of the bubble stands still while the server answers.
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
