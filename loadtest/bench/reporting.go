package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/stack"
)

var reporting = suite{
	name: "bench-reporting",
	manual: `Usage: go run ./loadtest/bench reporting [flags]

Measures reporting with a real Redis and the embedded ClickHouse on this machine,
and prints one table; about ten minutes, 4 GB of disk. Ends with status 1 when a
figure is beyond what is accepted. The parts:

  export    rows stored per second by "reporting export", from full streams
  reports   the five reports over a year of orders: one account's month, one
            fleet's month, the service's month and year; cold and warm
  download  the order ledger of the whole year as CSV, over HTTP and as a file:
            peak memory of reporting and of the engine; a fifth of it as XLSX

Flags:
`,
	timeout:  40 * time.Minute,
	programs: []string{"reporting", "devclickhouse"},
	rounds:   3, // of the export
	parts: []part{
		{name: "export", run: (*bench).measureExport},
		{name: "reports", run: (*bench).measureReports},
		{name: "download", run: (*bench).measureDownloads},
	},
	flags: func(b *bench, set *flag.FlagSet) {
		set.Func("parts", "measure only these, with commas between: "+strings.Join(b.partNames(), ", "), func(list string) error {
			for name := range strings.SplitSeq(list, ",") {
				if !slices.Contains(b.partNames(), name) {
					return fmt.Errorf("there is no %q", name)
				}
			}
			b.only = "^(" + strings.ReplaceAll(list, ",", "|") + ")$"
			return nil
		})
		set.IntVar(&b.orders, "orders", 0, "orders to export, 1000 to 1000000 (default 100000, quick 10000)")
		set.IntVar(&b.history, "history", 0, "orders in the year, 10000 to 50000000 (default 5000000, quick 200000)")
		set.StringVar(&b.profile, "profile", "", "write a CPU profile of the exporter during the last round to this file")
	},
	check: func(b *bench) error {
		orders, history := 100_000, 5_000_000
		if b.quick {
			orders, history = 10_000, 200_000
		}
		if b.orders == 0 {
			b.orders = orders
		}
		if b.history == 0 {
			b.history = history
		}
		switch {
		case b.orders < 1000 || b.orders > 1_000_000:
			return errors.New("-orders: want 1000 to 1000000")
		case b.history < 10_000 || b.history > 50_000_000:
			return errors.New("-history: want 10000 to 50000000")
		}
		return nil
	},
}

// reportingEnv is what a measurement stands on: a Redis, a ClickHouse, and the
// means to run reporting on both. It is asked as people ask it, over HTTP and on
// the command line; what is right is asked of ClickHouse.
type reportingEnv struct {
	bench  *bench
	dir    string
	config string // the shipped settings
	redis  *stack.Redis
	engine *stack.Program
	url    string // of the engine
}

// newReportingEnv starts Redis and the engine in a folder of their own.
func (b *bench) newReportingEnv(ctx context.Context, name string, redisSettings ...string) (*reportingEnv, error) {
	root, err := stack.ModuleDir()
	if err != nil {
		return nil, err
	}
	e := &reportingEnv{bench: b, dir: b.file(name), config: filepath.Join(root, "configs", "reporting.yaml")}
	if err := e.start(ctx, redisSettings); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func (e *reportingEnv) start(ctx context.Context, redisSettings []string) (err error) {
	if e.redis, err = stack.StartRedis(ctx, stack.RedisOptions{Dir: filepath.Join(e.dir, "redis"), Extra: redisSettings}); err != nil {
		return err
	}
	addr, err := stack.FreeAddr()
	if err != nil {
		return err
	}
	e.url = "http://" + addr
	e.engine = &stack.Program{Name: "engine", Path: e.bench.file("bin", "devclickhouse"),
		Args: []string{"-addr", addr, "-data", e.tables(), "-die-with-parent"}, Log: filepath.Join(e.dir, "engine.log"), Ready: e.url + "/ping"}
	return e.engine.Start(ctx)
}

// tables is the engine's folder.
func (e *reportingEnv) tables() string { return filepath.Join(e.dir, "clickhouse") }

func (e *reportingEnv) stop() {
	if e.engine != nil {
		e.engine.Stop()
	}
	if e.redis != nil {
		e.redis.Stop()
	}
}

// program is reporting, which is ready when a path at its address answers 200;
// without an address it is at once.
func (e *reportingEnv) program(name, ready, addr string, env []string, args ...string) *stack.Program {
	if addr != "" {
		ready = "http://" + addr + ready
	}
	return &stack.Program{Name: name, Path: e.bench.file("bin", "reporting"), Args: args,
		Env: append(e.environment(), env...), Log: filepath.Join(e.dir, name+".log"), Ready: ready}
}

// environment leaves nothing to the one that this process was started in.
func (e *reportingEnv) environment() []string {
	return []string{
		"ENVIRONMENT=sandbox", "REPORTING_INSTANCE=bench", "LOG_LEVEL=info", "LOG_FORMAT=text",
		"REDIS_URL=" + e.redis.URL, fmt.Sprintf("PARTITIONS=%d", partitions),
		"CLICKHOUSE_URL=" + e.url, "CLICKHOUSE_DATABASE=", "CLICKHOUSE_CLUSTER=",
		"PANEL_USERS=", "PANEL_USERS_FILE=", "REPORT_TOKENS=", "REPORT_TOKENS_FILE=", "PANEL_SECURE_COOKIES=false",
		// The panel wants them; nobody here has a tracking link or changes anything.
		"ADMIN_KEY=" + rand.Text(), "ADMIN_KEY_FILE=", "TRACKING_KEYS=t1:" + base64.StdEncoding.EncodeToString([]byte(rand.Text() + rand.Text())[:32]), "TRACKING_KEYS_FILE=",
	}
}

// command runs reporting to its end and returns its output.
func (e *reportingEnv) command(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, e.bench.file("bin", "reporting"), args...)
	var out, said strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), e.environment()...), &out, &said
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("reporting %s: %w: %s", args[0], errors.Join(err, context.Cause(ctx)), strings.TrimSpace(said.String()))
	}
	return out.String(), said.String(), nil
}

// ask sends a statement to the engine and returns its answer, tab-separated
// values.
func (e *reportingEnv) ask(ctx context.Context, statement string) (string, error) {
	resp, err := request(ctx, http.MethodPost, e.url+"/", statement, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(answer)), err
}

// askNumbers is ask for one row of n whole numbers.
func (e *reportingEnv) askNumbers(ctx context.Context, n int, statement string) ([]int64, error) {
	answer, err := e.ask(ctx, statement)
	if err != nil {
		return nil, err
	}
	numbers, targets := make([]int64, n), make([]any, n)
	for i := range numbers {
		targets[i] = &numbers[i]
	}
	if _, err := fmt.Sscan(answer, targets...); err != nil {
		return nil, fmt.Errorf("the engine answers %q to %.60q: %d numbers are wanted", answer, statement, n)
	}
	return numbers, nil
}

// differences counts the numbers that are not as wanted.
func differences(got, want []int64) (n int64) {
	for i := range want {
		if got[i] != want[i] {
			n++
		}
	}
	return n
}
