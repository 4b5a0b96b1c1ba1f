package stack

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// programStartTimeout bounds one start. Programs wait for Redis, so this is
// the longest time a start takes with Redis at hand.
const programStartTimeout = time.Minute

// Program is one of the system's own programs. It can be killed and started
// again on the same addresses, as the fault tests do.
type Program struct {
	Name    string
	process *process
	ready   string // URL that answers 200 when the program is ready
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
	ctx, cancel := context.WithTimeout(ctx, programStartTimeout)
	defer cancel()
	return p.process.awaitReady(ctx, func(ctx context.Context) error { return getOK(ctx, p.ready) })
}

// Stop asks the program to end (SIGTERM) and waits until it has.
func (p *Program) Stop() { p.process.stop() }

// Kill ends the program as a crash would (SIGKILL) and waits.
func (p *Program) Kill() { p.process.kill() }

// PID is the process id of the present run.
func (p *Program) PID() int { return p.process.pid() }

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
