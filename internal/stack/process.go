package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/stack/child"
)

// stopGrace is how long a child may take to end after SIGTERM before it is
// killed. It is longer than any program's own shutdown deadline.
const stopGrace = 30 * time.Second

// process is one child: a program with everything needed to start it again.
type process struct {
	name    string
	path    string
	args    []string
	dir     string    // working directory; empty: this process's own
	env     []string  // nil: this process's own
	logPath string    // standard output and error are appended here
	echo    io.Writer // lines that tell of errors are shown here, too; nil: nowhere
	inherit *os.File  // kept open in the child; nil: nothing
	onDeath func()    // called when a run ends that nobody asked to end; nil: nobody is told

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil before the first start
	done  chan struct{} // closed when the present run has ended
	asked bool          // the present run was asked to end
	err   error         // how the present run ended; set before done is closed
	from  int64         // the log's length when the present run began
}

// start begins a run. The child gets a process group of its own, so that a
// Ctrl-C at the terminal reaches this process only and the order of stopping
// stays in its hands.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !ended(p.done) {
		return fmt.Errorf("%s already runs", p.name)
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if info, err := log.Stat(); err == nil {
		p.from = info.Size()
	}
	cmd := p.command(log)
	if err := child.Start(cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.name, errors.Join(err, log.Close()))
	}
	p.cmd, p.done, p.asked, p.err = cmd, make(chan struct{}), false, nil
	go p.reap(cmd, p.done, log)
	return nil
}

func (p *process) command(log *os.File) *exec.Cmd {
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Stdout, cmd.Stderr = log, log
	if p.echo != nil {
		tee := &errorEcho{log: log, name: p.name, out: p.echo}
		cmd.Stdout, cmd.Stderr = tee, tee
	}
	if p.inherit != nil {
		cmd.ExtraFiles = []*os.File{p.inherit}
	}
	return cmd
}

// reap waits for the end of one run and tells it to whoever waits.
func (p *process) reap(cmd *exec.Cmd, done chan struct{}, log *os.File) {
	err := cmd.Wait()
	_ = log.Close() // the child wrote through descriptors of its own
	p.mu.Lock()
	p.err = err
	asked := p.asked
	p.mu.Unlock()
	close(done)
	if !asked && p.onDeath != nil {
		p.onDeath()
	}
}

// exited is closed when the present run has ended, or when there was none.
func (p *process) exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return p.done
}

// pid is the process id of the present or last run; 0 before the first.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// stop asks the child to end and waits; after stopGrace it is killed.
func (p *process) stop() {
	p.end(syscall.SIGTERM)
	select {
	case <-p.exited():
	case <-time.After(stopGrace):
		p.kill()
	}
}

// kill ends the child as a crash would, and waits until it is gone.
func (p *process) kill() {
	p.end(syscall.SIGKILL)
	<-p.exited()
}

func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && !ended(p.done) {
		p.asked = true
		_ = p.cmd.Process.Signal(s) // it ended in between: that was the aim
	}
}

// endedByItself tells whether the present run has ended and was not asked to.
func (p *process) endedByItself() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && !p.asked && ended(p.done)
}

// result is nil when the present run has ended with success.
func (p *process) result() error {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	if err == nil {
		return nil
	}
	return p.failure()
}

// failure describes how the present run ended, with the last lines of its log.
func (p *process) failure() error {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	if err == nil {
		err = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended: %w; the end of %s:\n%s", p.name, err, p.logPath, p.lastLines(15))
}

// lastLines is the end of what the present run has logged.
func (p *process) lastLines(n int) []byte {
	log, err := os.Open(p.logPath)
	if err != nil {
		return nil
	}
	defer log.Close()
	const most = 16 << 10
	p.mu.Lock()
	from := p.from
	p.mu.Unlock()
	if info, err := log.Stat(); err == nil {
		from = max(from, info.Size()-most)
	}
	if _, err := log.Seek(from, io.SeekStart); err != nil {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(log, most)) // a part is better than nothing
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// awaitReady asks ready until it answers nil. It fails when the child ends or
// ctx does, with the child's last words.
func (p *process) awaitReady(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.exited():
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)\n%s", p.name, ctx.Err(), last, p.lastLines(15))
		case <-tick.C:
		}
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// errorEcho writes a child's output to its log and shows the lines that tell
// of errors. exec calls Write from one goroutine.
type errorEcho struct {
	log  io.Writer
	name string
	out  io.Writer
	line []byte // the unfinished last line
}

func (e *errorEcho) Write(b []byte) (int, error) {
	e.line = append(e.line, b...)
	for {
		end := bytes.IndexByte(e.line, '\n')
		if end < 0 {
			return e.log.Write(b)
		}
		if tellsError(e.line[:end]) {
			fmt.Fprintf(e.out, "%s: %s\n", e.name, e.line[:end])
		}
		e.line = append(e.line[:0], e.line[end+1:]...)
	}
}

func tellsError(line []byte) bool {
	for _, mark := range []string{"level=ERROR", `"level":"ERROR"`, "panic: ", "fatal error: "} {
		if bytes.Contains(line, []byte(mark)) {
			return true
		}
	}
	return false
}
