package stack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// stopGrace is how long a child may take to end after SIGTERM before it is
// killed. It is longer than any program's own shutdown deadline.
const stopGrace = 30 * time.Second

// startTimeout bounds one start of a program that names no other.
const startTimeout = time.Minute

// Program is a child process that can be killed and started again on the same
// addresses. It dies with this process.
type Program struct {
	Name  string
	Path  string
	Args  []string
	Env   []string // NAME=value besides this process's own; the last of a name wins
	Log   string   // file that its output is appended to
	Ready string   // URL that answers 200 when it is ready; empty: it is at once

	dir     string                      // working directory; empty: this process's own
	prepare func() error                // before each start; optional
	check   func(context.Context) error // in place of Ready; optional
	timeout time.Duration               // of a start; 0: startTimeout
	echo    io.Writer                   // lines that report errors are shown here, too; optional
	inherit *os.File                    // kept open in the child; optional
	onDeath func(*Program)              // called when a run ends that nobody asked to end; optional

	run atomic.Pointer[run] // the present or last one; nil before the first
}

// run is one life of a program.
type run struct {
	cmd   *exec.Cmd
	from  int64 // the log's length when it began
	asked atomic.Bool
	done  chan struct{} // closed at its end
	err   error         // how it ended; set before done is closed
}

// never stands for the run before the first one: it has ended as it was asked to.
var never = func() *run {
	r := &run{cmd: &exec.Cmd{Process: new(os.Process)}, done: make(chan struct{})}
	r.asked.Store(true)
	close(r.done)
	return r
}()

func (p *Program) last() *run { return cmp.Or(p.run.Load(), never) }

// Start runs the program and returns when it is ready; after Stop or Kill it runs
// again. ctx bounds the start only.
func (p *Program) Start(ctx context.Context) error {
	if p.Running() {
		return fmt.Errorf("%s already runs", p.Name)
	}

	if p.prepare != nil {
		if err := p.prepare(); err != nil {
			return err
		}
	}

	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}

	r := &run{cmd: exec.Command(p.Path, p.Args...), done: make(chan struct{})}
	if info, err := log.Stat(); err == nil {
		r.from = info.Size()
	}

	r.cmd.Dir, r.cmd.Env = p.dir, environment(os.Environ(), p.Env)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if p.echo != nil {
		tee := &errorEcho{log: log, name: p.Name, out: p.echo}
		r.cmd.Stdout, r.cmd.Stderr = tee, tee
	}

	if p.inherit != nil {
		r.cmd.ExtraFiles = []*os.File{p.inherit}
	}

	if err := StartChild(r.cmd); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, errors.Join(err, log.Close()))
	}

	p.run.Store(r)
	go func() {
		r.err = r.cmd.Wait()
		_ = log.Close() // the child wrote through descriptors of its own
		close(r.done)
		if !r.asked.Load() && p.onDeath != nil {
			p.onDeath(p)
		}
	}()

	return p.AwaitReady(ctx)
}

// AwaitReady returns when the running program says that it is ready. It fails when that
// ends or ctx does, with the last lines of its log.
func (p *Program) AwaitReady(ctx context.Context) error {
	check := p.check
	switch {
	case check == nil && p.Ready == "":
		return nil
	case check == nil:
		check = p.answersOK
	}

	err := poll(ctx, cmp.Or(p.timeout, startTimeout), func() error {
		err := check(ctx)
		if err != nil && !p.Running() {
			err = backoff.Permanent(p.failure())
		}
		return err
	})

	if err != nil && p.Running() {
		err = fmt.Errorf("%s is not ready: %w\n%s", p.Name, err, p.lastLines(15))
	}

	return err
}

// poll asks every 20 ms until the answer is nil or a permanent error, or the time is over.
func poll(ctx context.Context, timeout time.Duration, ask func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, ask() },
		backoff.WithBackOff(backoff.NewConstantBackOff(20*time.Millisecond)), backoff.WithMaxElapsedTime(timeout))
	return err
}

func (p *Program) answersOK(context.Context) error {
	client := http.Client{Timeout: 3 * time.Second}
	resp, err := client.Get(p.Ready)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", p.Ready, resp.StatusCode)
	}

	return nil
}

// Stop asks the program to end (SIGTERM) and waits until it has; after stopGrace it is
// killed.
func (p *Program) Stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.last().done:
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// Kill ends the program as a crash would (SIGKILL) and waits.
func (p *Program) Kill() {
	p.signal(syscall.SIGKILL)
	<-p.last().done
}

func (p *Program) signal(s syscall.Signal) {
	if r := p.last(); p.Running() {
		r.asked.Store(true)
		_ = r.cmd.Process.Signal(s) // it ended in between: that was the aim
	}
}

// Running reports whether the present run has not ended.
func (p *Program) Running() bool {
	select {
	case <-p.last().done:
		return false
	default:
		return true
	}
}

// Wait returns when the present run has ended by itself: nil with success.
func (p *Program) Wait(ctx context.Context) error {
	select {
	case <-p.last().done:
		if p.last().err != nil {
			return p.failure()
		}
		return nil
	case <-ctx.Done():
		p.Stop()
		return context.Cause(ctx)
	}
}

// Check is an error once the present run has ended without being asked to.
func (p *Program) Check() error {
	if !p.Running() && !p.last().asked.Load() {
		return p.failure()
	}
	return nil
}

// PID is the process id of the present or last run; 0 before the first.
func (p *Program) PID() int { return p.last().cmd.Process.Pid }

// OpsURL is the origin of the program's private listener.
func (p *Program) OpsURL() string { return strings.TrimSuffix(p.Ready, "/readyz") }

// Use makes the next Start run the program of another folder of binaries with
// the settings of another folder, on the same addresses, with further NAME=value
// settings that win over the old ones.
func (p *Program) Use(binDir, configDir string, env ...string) {
	p.Path = filepath.Join(binDir, p.Name)
	p.Args = append(slices.Clone(p.Args[:len(p.Args)-1]), filepath.Join(configDir, p.Name+".yaml"))
	p.Env = append(slices.Clone(p.Env), env...)
}

func (p *Program) failure() error {
	err := cmp.Or(p.last().err, errors.New("exit status 0"))
	return fmt.Errorf("%s ended: %w; the end of %s:\n%s", p.Name, err, p.Log, p.lastLines(15))
}

func (p *Program) lastLines(n int) []byte {
	log, _ := os.ReadFile(p.Log) // without it there is less to read
	log = log[min(int(p.last().from), len(log)):]
	lines := bytes.Split(bytes.TrimRight(log, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}

// StartChild starts cmd so that it does not outlive this process (see attributes). A
// child's death signal is tied to the thread that started it, not to the process
// (prctl(2), PR_SET_PDEATHSIG), so one goroutine, which holds its thread for as long as
// this process runs, starts them all.
func StartChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = attributes()
	result := make(chan error)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})

// errorEcho writes a child's output to its log and shows the lines that report
// errors. exec calls Write from one goroutine.
type errorEcho struct {
	log  io.Writer
	name string
	out  io.Writer
	line []byte // the unfinished last line
}

var reportsError = regexp.MustCompile(`level=ERROR|"level":"ERROR"|panic: |fatal error: `)

func (e *errorEcho) Write(b []byte) (int, error) {
	e.line = append(e.line, b...)
	for {
		line, rest, whole := bytes.Cut(e.line, []byte("\n"))
		if !whole {
			return e.log.Write(b)
		}
		if reportsError.Match(line) {
			fmt.Fprintf(e.out, "%s: %s\n", e.name, line)
		}
		e.line = rest
	}
}

// Free ports are taken from below the range that systems give to outgoing
// connections (32768 and up on Linux), so that no connection of a busy test
// sits on the port by the time the child listens.
const (
	lowestFreePort  = 15000
	highestFreePort = 32000
)

var given sync.Map // ports, never handed out twice by one process

// FreeAddr is 127.0.0.1 with a port that was free a moment ago and that this
// process has not been given before. It panics when there is none, as httptest does.
func FreeAddr() string {
	for range 1000 {
		addr := "127.0.0.1:" + strconv.Itoa(lowestFreePort+rand.IntN(highestFreePort-lowestFreePort))
		if requireFree("", addr) != nil {
			continue
		}
		if _, before := given.LoadOrStore(addr, true); !before {
			return addr
		}
	}

	panic("found no free port on 127.0.0.1")
}

// Listen listens on an address of FreeAddr that was closed before. Another program may
// use it for a moment, so it tries for some seconds.
func Listen(addr string) (l net.Listener, err error) {
	err = poll(context.Background(), 5*time.Second, func() error {
		l, err = net.Listen("tcp", addr)
		return err
	})
	return l, err
}

// requireFree refuses an address that something listens on already, and names
// the variable that moves it.
func requireFree(variable, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; free it or set %s to another address, such as %s=127.0.0.1:18080",
			addr, err, variable, variable)
	}
	return l.Close()
}

// environment returns the inherited variables and a program's own. A variable that is
// inherited as NAME_FILE is left out where the program has NAME of its own, and the other
// way round, for a program that finds both does not start.
func environment(inherited, own []string) []string {
	replaced := map[string]bool{}
	for _, variable := range own {
		name, _, _ := strings.Cut(variable, "=")
		replaced[name+"_FILE"] = true
		replaced[strings.TrimSuffix(name, "_FILE")] = true
	}

	kept := slices.DeleteFunc(slices.Clone(inherited), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return replaced[name]
	})

	return append(kept, own...)
}
