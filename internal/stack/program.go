package stack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// programStartTimeout bounds one start. Programs wait for Redis, so this is
// the longest time a start takes with Redis at hand.
const programStartTimeout = time.Minute

// Program is one of the system's programs, or one of NewProgram. It can be
// killed and started again on the same addresses.
type Program struct {
	Name    string
	process *process
	ready   string // URL that answers 200 when the program is ready; empty: it is at once
}

// ProgramOptions describe a program that is no part of a Stack.
type ProgramOptions struct {
	Name  string
	Path  string
	Args  []string
	Env   []string // besides this process's own
	Log   string   // file that its output is appended to
	Ready string   // URL that answers 200 when it is ready; empty: it is at once
}

// NewProgram prepares a program that is not started yet.
func NewProgram(o ProgramOptions) *Program {
	return &Program{Name: o.Name, ready: o.Ready, process: &process{
		name: o.Name, path: o.Path, args: o.Args, env: append(os.Environ(), o.Env...), logPath: o.Log,
	}}
}

// Start runs the program and returns when it is ready; after Stop or Kill it
// runs again.
func (p *Program) Start(ctx context.Context) error {
	if err := p.process.start(); err != nil {
		return err
	}
	return p.AwaitReady(ctx)
}

// AwaitReady returns when the running program says that it is ready.
func (p *Program) AwaitReady(ctx context.Context) error {
	if p.ready == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, programStartTimeout)
	defer cancel()
	return p.process.awaitReady(ctx, func(ctx context.Context) error { return getOK(ctx, p.ready) })
}

// Wait returns when the present run has ended by itself: nil with success.
func (p *Program) Wait(ctx context.Context) error {
	select {
	case <-p.process.exited():
		return p.process.result()
	case <-ctx.Done():
		p.Stop()
		return context.Cause(ctx)
	}
}

// Check is an error once the present run has ended without being asked to.
func (p *Program) Check() error {
	if p.process.endedByItself() {
		return p.process.failure()
	}
	return nil
}

// Use makes the next Start run the program of another folder of binaries with
// the settings of another folder, on the same addresses, with further NAME=value
// settings that win over the old ones.
func (p *Program) Use(binDir, configDir string, env ...string) {
	p.process.path = filepath.Join(binDir, p.Name)
	p.process.args = slices.Clone(p.process.args)
	p.process.args[len(p.process.args)-1] = filepath.Join(configDir, p.Name+".yaml")
	p.process.env = append(slices.Clone(p.process.env), env...)
}

// Stop asks the program to end (SIGTERM) and waits until it has.
func (p *Program) Stop() { p.process.stop() }

// Kill ends the program as a crash would (SIGKILL) and waits.
func (p *Program) Kill() { p.process.kill() }

// PID is the process id of the present run.
func (p *Program) PID() int { return p.process.pid() }

// OpsURL is the origin of the program's private listener.
func (p *Program) OpsURL() string { return strings.TrimSuffix(p.ready, "/readyz") }

// LogPath is the file that holds what the program has said.
func (p *Program) LogPath() string { return p.process.logPath }

func getOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
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
	return nil
}
