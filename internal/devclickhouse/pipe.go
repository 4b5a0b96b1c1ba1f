package devclickhouse

import (
	"fmt"
	"os"
	"syscall"
)

// newPipe makes a pipe whose writing end is opened by the engine, as
// /dev/fd/N. That end must block: the engine takes a full pipe for an error
// otherwise (os.Pipe makes both ends non-blocking, and where /dev/fd/N is a
// duplicate the engine would inherit that).
func newPipe() (from *os.File, to int, err error) {
	var ends [2]int
	syscall.ForkLock.RLock()
	err = syscall.Pipe(ends[:])
	if err == nil {
		syscall.CloseOnExec(ends[0])
		syscall.CloseOnExec(ends[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, 0, fmt.Errorf("pipe: %w", err)
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil { // read through Go's poller
		_, _ = syscall.Close(ends[0]), syscall.Close(ends[1])
		return nil, 0, fmt.Errorf("pipe: %w", err)
	}
	return os.NewFile(uintptr(ends[0]), "result"), ends[1], nil
}

func closePipe(to int) { _ = syscall.Close(to) } // this process wrote nothing that could be lost
