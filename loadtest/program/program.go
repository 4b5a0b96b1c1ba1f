// Package program runs one of the service's programs as a child process with a
// log of its own, for what measures it.
//
// It owns its life: starting, waiting until it is ready, stopping and
// killing. It refuses to know what the program does and what it is measured by;
// whole systems are internal/stack's.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack/child"
)

// Program is a binary as a child process, which goes on until it is stopped or
// ends by itself. Its methods are for one goroutine.
type Program struct {
	Name string // for errors
	Path string
	Args []string
	Env  []string // besides this process's own
	Log  string   // path of what it says
	// Ready is a URL that answers 200 once the program is ready; empty: it is at
	// once. StartPatience bounds how long that takes, from the fork on.
	Ready         string
	StartPatience time.Duration
	// StopPatience is how long it may take to end in order.
	StopPatience time.Duration

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the present run has ended
	asked  bool          // by stop
	result error
}

// Start runs the program and returns when it is ready.
func (p *Program) Start(ctx context.Context) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer log.Close() // the child has a descriptor of its own
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Env = append(os.Environ(), p.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.asked = cmd, ended, false
	go func() {
		p.result = cmd.Wait()
		close(ended)
	}()
	if p.Ready == "" {
		return nil
	}
	if err := p.AwaitAnswer(ctx, p.Ready); err != nil {
		return errors.Join(err, p.Stop())
	}
	return nil
}

// AwaitAnswer returns when a URL of the program answers 200.
func (p *Program) AwaitAnswer(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.StartPatience, fmt.Errorf("not within %s", p.StartPatience))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if Get(ctx, url, io.Discard) == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; the end of its log:\n%s", p.Name, context.Cause(ctx), p.LastWords())
		case <-tick.C:
		}
	}
}

// Await returns when the program has ended by itself, which it is expected to do
// with success.
func (p *Program) Await(ctx context.Context) error {
	select {
	case <-p.ended:
		if p.result != nil {
			return p.failure()
		}
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Stop())
	}
}

// Check is nil while the program runs, and after an end that was asked for.
func (p *Program) Check() error {
	if p.cmd == nil || p.asked {
		return nil
	}
	select {
	case <-p.ended:
		return p.failure()
	default:
		return nil
	}
}

func (p *Program) failure() error {
	return fmt.Errorf("%s ended by itself: %w; the end of its log:\n%s", p.Name, errors.Join(p.result), p.LastWords())
}

// LastWords are the end of its log.
func (p *Program) LastWords() string {
	text, _ := os.ReadFile(p.Log) // the message is only shorter without it
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}

// PID is the running program's process id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Stop asks the program to end and waits; after StopPatience it is killed, and
// the error says so. It may be called at any time.
func (p *Program) Stop() error {
	if p.cmd == nil || p.asked {
		return nil
	}
	p.asked = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.ended:
		return nil
	case <-time.After(p.StopPatience):
		p.Kill()
		return fmt.Errorf("%s did not end when asked to", p.Name)
	}
}

// Kill ends the program as a crash would, and waits until it is gone. It may be
// called at any time.
func (p *Program) Kill() {
	if p.cmd == nil {
		return
	}
	p.asked = true
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.ended
}

// Get writes what a URL answers with 200.
func Get(ctx context.Context, url string, to io.Writer) error {
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
