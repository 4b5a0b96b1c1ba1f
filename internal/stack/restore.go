package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Restore puts a backup, the folder from with the keys and demo.json in it, into a
// data directory that no run is using: keys, Redis and ClickHouse, so that the next
// Start goes on from it. The private Redis and the embedded engine run for as long as
// that takes. A backup that is damaged is refused before anything is touched.
//
// replace moves what is in the data directory into a folder "before-<time>" in it;
// without it data that is there is an error. Of the options DataDir, BinDir,
// ClickHouseURL and Out count.
func Restore(ctx context.Context, o Options, from string, replace bool) error {
	o.ClickHouseAddr, o.Env = FreeAddr(), []string{NoEngineKey}
	s, err := open(o)
	if err != nil {
		return err
	}
	defer s.Stop()
	s.env = o.Env
	if from, err = filepath.Abs(from); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return inOrder(ctx, s.build, s.restoreCommand(from, "--check"),
		func(context.Context) error { return s.moveAside(replace) },
		s.restoreCommand(from, "--redis-dir", s.data.file("redis"), "--included-dir", s.data.path),
		s.startRedis, s.startClickHouse, s.restoreCommand(from),
		func(context.Context) error { return os.Remove(s.data.file(restoringFile)) })
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
		return fmt.Errorf("restore: %s is not empty (%s): use an empty DATA_DIR, or REPLACE=1 to move these aside", s.data.path, there[0])
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

// restoreCommand runs `reporting restore`, which shows its own progress.
func (s *Stack) restoreCommand(from string, args ...string) step {
	args = append([]string{"restore", "--from", from, "--config", s.configFile("reporting")}, args...)
	return func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, filepath.Join(s.options.BinDir, "reporting"), args...)
		cmd.Env = append(append(os.Environ(), s.env...), "ENVIRONMENT=sandbox", "CLICKHOUSE_URL="+s.ClickHouseURL())
		cmd.Stdout, cmd.Stderr = s.options.Out, s.options.Out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("restore: reporting restore: %w", err)
		}
		return nil
	}
}
