package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/stack"
)

const (
	// startPatience bounds a start, from the fork to the answer that all is
	// ready; an engine looks through its tables before.
	startPatience = time.Minute
	// stopPatience is how long a program may take to end in order; longer than
	// its own patience with what is under way.
	stopPatience = 25 * time.Second
)

// buildReporting compiles reporting alone into dir.
func buildReporting(ctx context.Context, dir string) error {
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./reporting")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build reporting: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
}

// program is reporting's binary as a child process that goes on until it is
// stopped, or ends by itself.
type program struct {
	name  string // for errors
	path  string
	args  []string
	env   []string // besides this process's own
	log   string   // path of what it says
	ready string   // a URL that answers 200 once it is ready; empty: it is at once

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the present run has ended
	asked  bool          // by stop
	result error
}

// start runs the program and returns when it is ready.
func (p *program) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close() // the child has a descriptor of its own
	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttributes()
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.asked = cmd, ended, false
	go func() {
		p.result = cmd.Wait()
		close(ended)
	}()
	if p.ready == "" {
		return nil
	}
	if err := p.awaitAnswer(ctx, p.ready); err != nil {
		p.stop()
		return err
	}
	return nil
}

// awaitAnswer returns when a URL of the program answers 200.
func (p *program) awaitAnswer(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("not within %s", startPatience))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if get(ctx, url, io.Discard) == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; the end of its log:\n%s", p.name, context.Cause(ctx), p.lastWords())
		case <-tick.C:
		}
	}
}

// await returns when the program has ended by itself, which it is expected to do
// with success.
func (p *program) await(ctx context.Context) error {
	select {
	case <-p.ended:
		if p.result != nil {
			return p.failure()
		}
		return nil
	case <-ctx.Done():
		p.stop()
		return context.Cause(ctx)
	}
}

// check is nil while the program runs.
func (p *program) check() error {
	select {
	case <-p.ended:
		return p.failure()
	default:
		return nil
	}
}

func (p *program) failure() error {
	return fmt.Errorf("%s ended by itself: %w; the end of its log:\n%s", p.name, errors.Join(p.result), p.lastWords())
}

func (p *program) lastWords() string {
	text, _ := os.ReadFile(p.log) // the message is only shorter without it
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

func (p *program) pid() int { return p.cmd.Process.Pid }

// stop asks the program to end and waits; after stopPatience it is killed. It
// may be called at any time.
func (p *program) stop() {
	if p.cmd == nil || p.asked {
		return
	}
	p.asked = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
	case <-time.After(stopPatience):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// get writes what a URL answers with 200.
func get(ctx context.Context, url string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, resp.StatusCode)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// A child's death signal is tied to the thread that started it (prctl(2),
// PR_SET_PDEATHSIG), so all are started by one goroutine that keeps its thread.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

func spawn(cmd *exec.Cmd) error {
	r := spawnRequest{cmd, make(chan error, 1)}
	spawner() <- r
	return <-r.result
}
