package stack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Restore puts a backup, the folder from with the keys and demo.json in it, into a
// data directory that no run is using: keys, Redis and ClickHouse, so that the next
// Start goes on from it. The private Redis and the embedded engine run for as long as
// that takes. A backup that is damaged is refused before anything is touched.
//
// replace moves what is in the data directory into a folder "before-<time>" in it;
// without it data that is there is an error. Of the options DataDir, BinDir,
// ClickHouseURL, AgeIdentity, Erasures and Out count.
func Restore(ctx context.Context, o Options, from string, replace bool) error {
	return restore(ctx, o, from, replace, nil)
}

// restore also does what drill says while Redis and ClickHouse still run.
func restore(ctx context.Context, o Options, from string, replace bool, drill func(*Stack) []step) error {
	o.ClickHouseAddr, o.Env = FreeAddr(), append([]string{NoEngineKey, "ENVIRONMENT=sandbox"}, o.Env...)
	s, err := open(o)
	if err != nil {
		return err
	}
	defer s.Stop()

	s.env = o.Env
	from, err = filepath.Abs(from)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}

	command := []string{"restore", "--from", from, "--erasures", o.Erasures}
	if o.AgeIdentity != "" {
		command = append(command, "--age-identity", o.AgeIdentity)
	}

	restore := func(args ...string) step { return s.command(BackupUser, slices.Concat(command, args)...) }
	steps := []step{s.build, restore("--check"),
		func(context.Context) error { return s.moveAside(replace) },
		restore("--redis-dir", s.data.file("redis"), "--included-dir", s.data.path),
		s.startRedis, s.startClickHouse, s.command(BackupUser, "migrate"), restore(),
		func(context.Context) error { return os.Remove(s.data.file(restoringFile)) }}

	if drill != nil {
		steps = append(steps, drill(s)...)
	}

	return inOrder(ctx, steps...)
}

// Drill restores a backup, or the newest of a folder of them, into a data directory of its
// own, compares Redis with ClickHouse there, and removes it. Of the programs only the
// exporter runs: nothing is sent to anybody. Of the options BinDir, AgeIdentity, Erasures and Out count.
func Drill(ctx context.Context, o Options, from string) (err error) {
	began := time.Now()
	if whole, _ := filepath.Glob(filepath.Join(from, "*Z", "backup.json")); len(whole) > 0 { // the pattern is well-formed
		from = filepath.Dir(slices.Max(whole))
	}

	var backup struct {
		Environment   string
		Partitions    int
		Began         time.Time
		Redis, Tables []any
	}

	text, err := os.ReadFile(filepath.Join(from, "backup.json"))
	err = cmp.Or(err, json.Unmarshal(text, &backup))
	if err != nil {
		return fmt.Errorf("restore drill: %w", err)
	}
	if len(backup.Redis) != 1 || len(backup.Tables) == 0 {
		return errors.New("restore drill: only a backup of one Redis with its history can be tried by itself")
	}
	o.DataDir, err = os.MkdirTemp("", "restore-drill-")
	if err != nil {
		return fmt.Errorf("restore drill: %w", err)
	}

	defer func() { err = errors.Join(err, os.RemoveAll(o.DataDir)) }()
	fmt.Fprintf(o.Out, "trying %s in %s\n", from, o.DataDir)
	o.ClickHouseURL, o.environment = "", backup.Environment
	o.Env = []string{"ENVIRONMENT=" + backup.Environment, fmt.Sprint("PARTITIONS=", backup.Partitions)}
	// What Redis keeps of ended orders by default.
	day := backup.Began.In(time.FixedZone("", 3*60*60)) // days are Istanbul's
	err = restore(ctx, o, from, false, func(s *Stack) []step {
		return []step{s.startExporter, s.command(ReportingUser, "reconcile", "--wait", "10m",
			"--from", day.AddDate(0, 0, -7).Format(time.DateOnly), "--to", day.Format(time.DateOnly))}
	})

	if err == nil {
		fmt.Fprintf(o.Out, "\n%s was restored and reconciled within %.0f s\n", from, time.Since(began).Seconds())
	}

	return err
}

func (s *Stack) startExporter(ctx context.Context) error {
	addr := FreeAddr()
	p := s.program("reporting", origin(addr)+"/readyz", "export", "--config", s.configFile("reporting"))
	p.Env = append(p.Env, "CLICKHOUSE_URL="+s.ClickHouseURL(), "REPORTING_OPS_ADDR="+addr)
	return s.run(ctx, p, "only the exporter")
}

// restoringFile is there from a restore's first change to its end: what lies beside
// it is neither the old nor the restored data, and nothing starts on it.
const restoringFile = "restore-unfinished"

// restored is what a backup puts back, below the data directory.
var restored = []string{"redis", "clickhouse", "keys", demoFile, partialFile, envFile}

// moveAside marks the restore as unfinished and moves aside what is where the backup
// goes; without replace that is an error, before anything has changed.
func (s *Stack) moveAside(replace bool) error {
	var there []string
	for _, name := range restored {
		entries, err := os.ReadDir(s.data.file(name))
		_, missing := os.Stat(s.data.file(name))
		if len(entries) > 0 || err != nil && missing == nil {
			there = append(there, name)
		}
	}

	if len(there) > 0 && !replace {
		return fmt.Errorf("restore: %s is not empty (%s): use an empty DATA_DIR, or REPLACE=yes to move these aside", s.data.path, there[0])
	}
	if err := s.data.write(restoringFile, nil); err != nil || len(there) == 0 {
		return err
	}

	aside := s.data.file("before-" + time.Now().UTC().Format("20060102T150405Z"))
	err := os.Mkdir(aside, 0o700)
	for _, name := range there {
		err = errors.Join(err, os.Rename(s.data.file(name), filepath.Join(aside, name)))
	}

	for _, name := range []string{"redis", "keys"} {
		err = errors.Join(err, os.MkdirAll(s.data.file(name), 0o700))
	}

	if err != nil {
		return fmt.Errorf("restore: moving what was there aside: %w", err)
	}

	fmt.Fprintf(s.options.Out, "moved what was there to %s\n", aside)

	return nil
}

// command runs a command of reporting as a user of Redis. It shows its own progress.
func (s *Stack) command(user string, args ...string) step {
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, filepath.Join(s.options.BinDir, "reporting"), append(args, "--config", s.configFile("reporting"))...)
		cmd.Env = environment(os.Environ(), slices.Concat(s.env, s.redisEnv(user), []string{"CLICKHOUSE_URL=" + s.ClickHouseURL()}))
		cmd.Stdout, cmd.Stderr = s.options.Out, s.options.Out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("reporting %s: %w", args[0], err)
		}
		return nil
	}
}
