package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/program"
)

// partitions is the number that production starts with.
const partitions = ledger.DefaultPartitions

const (
	// startPatience bounds a start; an engine looks through its tables before it
	// is ready.
	startPatience = time.Minute
	// stopPatience is longer than a program's own patience with what is under
	// way.
	stopPatience = 25 * time.Second
)

// rig is what a measurement stands on: a Redis, an engine, and the means to run
// reporting on both.
type rig struct {
	bench  *bench
	dir    string
	redis  *stack.Redis
	engine *program.Program
	url    string // of the engine
}

// newRig starts Redis and the engine in a folder of their own.
func (b *bench) newRig(ctx context.Context, name string, redisSettings ...string) (*rig, error) {
	r := &rig{bench: b, dir: b.file(name)}
	if err := r.start(ctx, redisSettings); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context, redisSettings []string) (err error) {
	if r.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(r.dir, "redis"), Extra: redisSettings}); err != nil {
		return err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	r.url = "http://" + addr
	r.engine = r.program("engine", nil, "-addr", addr, "-data", r.tables(), "-die-with-parent")
	r.engine.Path = r.bench.file("bin", "devclickhouse")
	r.engine.Ready = r.url + "/ping"
	return r.engine.Start(ctx)
}

// tables is the engine's folder.
func (r *rig) tables() string { return filepath.Join(r.dir, "clickhouse") }

func (r *rig) stop() (err error) {
	if r.engine != nil {
		err = r.engine.Stop()
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	return err
}

// restart starts the engine anew, with a cold page cache if that is wanted and
// can be had.
func (r *rig) restart(ctx context.Context, cold bool) error {
	if err := r.engine.Stop(); err != nil {
		return err
	}
	if cold {
		if err := forget(r.tables()); err != nil {
			return fmt.Errorf("make the page cache forget the tables: %w", err)
		}
	}
	return r.engine.Start(ctx)
}

// program is reporting with the shipped settings, on this rig.
func (r *rig) program(name string, env []string, args ...string) *program.Program {
	return &program.Program{Name: name, Path: r.bench.file("bin", "reporting"), Args: args, Env: r.environment(env...),
		Log: filepath.Join(r.dir, name+".log"), StartPatience: startPatience, StopPatience: stopPatience}
}

// environment leaves nothing to the one that this process was started in.
func (r *rig) environment(more ...string) []string {
	return append([]string{
		"ENVIRONMENT=sandbox", "REPORTING_INSTANCE=bench", "LOG_LEVEL=info", "LOG_FORMAT=text",
		"REDIS_URL=" + r.redis.URL, fmt.Sprintf("PARTITIONS=%d", partitions),
		"CLICKHOUSE_URL=" + r.url, "CLICKHOUSE_DATABASE=", "CLICKHOUSE_CLUSTER=",
		"PANEL_USERS=", "PANEL_USERS_FILE=", "REPORT_TOKENS=", "REPORT_TOKENS_FILE=", "PANEL_SECURE_COOKIES=false",
		// The panel wants them; nobody here has a tracking link or changes anything.
		"ADMIN_KEY=" + rand.Text(), "ADMIN_KEY_FILE=", "TRACKING_KEYS=t1:" + base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32]), "TRACKING_KEYS_FILE=",
	}, more...)
}

// command runs reporting to its end and answers what it has printed and said.
func (r *rig) command(ctx context.Context, args ...string) (out, said string, err error) {
	cmd := exec.CommandContext(ctx, r.bench.file("bin", "reporting"), args...)
	var stdout, stderr strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), r.environment()...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("reporting %s: %w: %s", args[0], errors.Join(err, context.Cause(ctx)), strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), stderr.String(), nil
}

// config is the shipped settings file.
func config() (string, error) {
	root, err := stack.ModuleDir()
	return filepath.Join(root, "configs", "reporting.yaml"), err
}

// profiledConfig is a copy of it that also serves profiles.
func (r *rig) profiledConfig() (string, error) {
	shipped, err := config()
	if err != nil {
		return "", err
	}
	content, err := os.ReadFile(shipped)
	if err != nil {
		return "", fmt.Errorf("reporting's settings: %w", err)
	}
	key := regexp.MustCompile(`(?m)^( *pprof:).*$`)
	if n := len(key.FindAll(content, -1)); n != 1 {
		return "", fmt.Errorf("reporting's settings: pprof is in there %d times", n)
	}
	path := filepath.Join(r.dir, "reporting.yaml")
	if err := os.WriteFile(path, key.ReplaceAll(content, []byte("${1} true")), 0o600); err != nil {
		return "", fmt.Errorf("reporting's settings: %w", err)
	}
	return path, nil
}

// ask sends a statement to the engine and answers what it says: tab-separated
// values.
func (r *rig) ask(ctx context.Context, statement string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask the engine: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("ask the engine: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the engine answers %d to %.60q: %s", resp.StatusCode, statement, strings.TrimSpace(string(answer)))
	}
	return strings.TrimSpace(string(answer)), nil
}

// askNumbers is ask for one row of whole numbers.
func (r *rig) askNumbers(ctx context.Context, into []*int64, statement string) error {
	answer, err := r.ask(ctx, statement)
	if err != nil {
		return err
	}
	targets := make([]any, len(into))
	for i := range into {
		targets[i] = into[i]
	}
	if n, err := fmt.Sscan(answer, targets...); err != nil || n != len(into) {
		return fmt.Errorf("the engine answers %q to %.60q: %d numbers are wanted", answer, statement, len(into))
	}
	return nil
}

// tellRedis gives Redis a command that answers one line. The client library has
// no place outside the ledger.
func (r *rig) tellRedis(ctx context.Context, args ...string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.redis.Addr)
	if err != nil {
		return fmt.Errorf("redis %s: %w", args[0], err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return fmt.Errorf("redis %s: %w", args[0], err)
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return fmt.Errorf("redis %s: %w", args[0], err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("redis %s: %w", args[0], err)
	}
	if !strings.HasPrefix(answer, "+") && !strings.HasPrefix(answer, ":") {
		return fmt.Errorf("redis %s: it answers %q", args[0], strings.TrimSpace(answer))
	}
	return nil
}
