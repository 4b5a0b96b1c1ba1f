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
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"time"

	"vendorapi/internal/stack"
)

const (
	// startPatience bounds a worker's start, from the fork to its /readyz.
	startPatience = 20 * time.Second
	// stopPatience is how long a worker may finish what it sends; longer than
	// its own timeouts for a request and for its record.
	stopPatience = 25 * time.Second
)

// buildWorker compiles the worker alone into dir.
func buildWorker(ctx context.Context, dir string) error {
	root, err := stack.ModuleDir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(filepath.Separator), "./worker")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the worker: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}
	return nil
}

// worker is the worker's binary as a child process, with the webhook role only.
type worker struct {
	path, config string
	env          []string
	ops          string // address of its health and metrics
	log          string // path of its output

	cmd    *exec.Cmd
	ended  chan struct{} // closed when the present run has ended
	asked  bool          // by stop or kill
	result error
}

// edit is another value for a key of the shipped settings.
type edit struct{ key, value string }

// newWorker prepares a worker with the shipped settings; its instance name stays
// the same over restarts.
func newWorker(bin, dir, redisURL string, k key, edits []edit) (*worker, error) {
	config, err := writeConfig(dir, edits)
	if err != nil {
		return nil, err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return nil, err
	}
	return &worker{
		path: filepath.Join(bin, "worker"), config: config, ops: addr, log: filepath.Join(dir, "worker.log"),
		env: append(os.Environ(), "ENVIRONMENT=sandbox", "COURIER=manual", "WEBHOOK_LOCAL_RECEIVERS=auto", "LOG_LEVEL=error",
			"PARTITIONS="+fmt.Sprint(partitions), "REDIS_URL="+redisURL, "WORKER_OPS_ADDR="+addr, "WORKER_INSTANCE=bench",
			"WEBHOOK_KEYS="+k.String(), "WEBHOOK_KEYS_FILE="),
	}, nil
}

func writeConfig(dir string, edits []edit) (path string, err error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(filepath.Join(root, "configs", "worker.yaml"))
	if err != nil {
		return "", fmt.Errorf("the worker's settings: %w", err)
	}
	for _, e := range edits {
		line := regexp.MustCompile(`(?m)^( *` + regexp.QuoteMeta(e.key) + `:).*$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return "", fmt.Errorf("the worker's settings: %s is in there %d times", e.key, n)
		}
		content = line.ReplaceAll(content, []byte("${1} "+e.value))
	}
	path = filepath.Join(dir, "worker.yaml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("the worker's settings: %w", err)
	}
	return path, nil
}

// start runs the worker and returns when it is ready.
func (w *worker) start(ctx context.Context) error {
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	defer log.Close() // the child has a descriptor of its own
	cmd := exec.Command(w.path, "-config", w.config, "-roles", "webhook")
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = w.env, log, log, childAttributes()
	if err := spawn(cmd); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	ended := make(chan struct{})
	w.cmd, w.ended, w.asked = cmd, ended, false
	go func() {
		w.result = cmd.Wait()
		close(ended)
	}()
	return w.awaitReady(ctx)
}

func (w *worker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if w.get(ctx, "/readyz", io.Discard) == nil {
			return nil
		}
		select {
		case <-w.ended:
			return w.failure()
		case <-ctx.Done():
			return fmt.Errorf("the worker is not ready: %w; its log is %s", context.Cause(ctx), w.log)
		case <-tick.C:
		}
	}
}

// get asks the worker's ops listener and writes what it answers with 200.
func (w *worker) get(ctx context.Context, path string, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.ops+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the worker's %s answers %d", path, resp.StatusCode)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// profileWorker writes two seconds of the worker's CPU profile, if wanted.
func (b *bench) profileWorker(ctx context.Context, w *worker, wanted bool) error {
	if !wanted {
		return nil
	}
	file, err := os.Create(b.profile)
	if err != nil {
		return fmt.Errorf("-profile: %w", err)
	}
	if err := errors.Join(w.get(ctx, "/debug/pprof/profile?seconds=2", file), file.Close()); err != nil {
		return fmt.Errorf("-profile: %w", err)
	}
	return nil
}

// failure is how a run ended that nobody had asked to end.
func (w *worker) failure() error {
	text, _ := os.ReadFile(w.log) // the message is only shorter without it
	return fmt.Errorf("the worker ended by itself: %w\n%s", w.result, text[max(0, len(text)-2000):])
}

// check is nil while the worker runs, and after an end that was asked for.
func (w *worker) check() error {
	if w.cmd == nil || w.asked {
		return nil
	}
	select {
	case <-w.ended:
		return w.failure()
	default:
		return nil
	}
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

// stop asks the worker to end and waits; after stopPatience it is killed.
func (w *worker) stop() error {
	if w.cmd == nil || w.asked {
		return nil
	}
	w.asked = true
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-w.ended:
		return nil
	case <-time.After(stopPatience):
		w.kill()
		return errors.New("the worker did not end when asked to")
	}
}

// kill ends the worker as a crash would, and waits until it is gone.
func (w *worker) kill() {
	if w.cmd == nil {
		return
	}
	w.asked = true
	_ = w.cmd.Process.Kill()
	<-w.ended
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
