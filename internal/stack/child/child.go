// Package child starts processes that do not outlive this one.
//
// It owns the thread that a child's death signal is tied to. It refuses to watch
// over what it has started: waiting and stopping are the caller's.
package child

import (
	"os/exec"
	"runtime"
	"sync"
)

// Start starts cmd in a process group of its own, so that a Ctrl-C at the
// terminal reaches this process only, and on Linux has the kernel kill it when
// this process is gone, however it went. It replaces cmd.SysProcAttr.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	r := request{cmd, make(chan error, 1)}
	starter() <- r
	return <-r.result
}

type request struct {
	cmd    *exec.Cmd
	result chan error
}

// A child's death signal is tied to the thread that started it, not to the
// process (prctl(2), PR_SET_PDEATHSIG). All children are therefore started by
// one goroutine that holds its thread for as long as this process lives.
var starter = sync.OnceValue(func() chan<- request {
	requests := make(chan request)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})
