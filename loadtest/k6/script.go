package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shipped are the names of the scripts of loadtest/, in the order in which they are played.
var shipped = []string{"smoke", "burst", "polling", "steady", "evening", "mixed", "soak", "ramp", "spike", "failover"}

// script is a shipped script, or one of the user's own.
type script struct {
	name  string // the file's name without .js
	path  string
	needs needs

	// atMost is how long its scenarios may take, as k6 computes it.
	atMost time.Duration
}

// needs are what a script needs (plan() in loadtest/lib/levels.js).
type needs struct {
	Accounts int    // accounts that a system of its own gets; of a deployment the script plays those of the settings
	Orders   int    // orders that an account must be allowed in 10 s; 0: as many as the contract allows
	Courier  string // "manual": no sandbox courier may deliver its orders; empty: one does
	Outages  bool   // programs have to fail while it runs
	Fleet    bool   // it plays a fleet, too
}

// inspect has k6 read a script and returns what the script says of itself. env is the environment that it reads its
// settings from.
func inspect(ctx context.Context, k6, path string, env []string) (*script, error) {
	cmd := exec.CommandContext(ctx, k6, "inspect", "--execution-requirements", "--include-system-env-vars", path)
	cmd.Env = env
	var log bytes.Buffer
	cmd.Stderr = &log
	description, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("k6 cannot read %s: %w\n%s", path, err, bytes.TrimSpace(log.Bytes()))
	}

	var read struct {
		TotalDuration string
		Ext           struct {
			Loadtest *struct{ Needs needs }
		}
	}

	if err := json.Unmarshal(description, &read); err != nil {
		return nil, fmt.Errorf("k6's description of %s: %w", path, err)
	}
	if read.Ext.Loadtest == nil {
		return nil, fmt.Errorf("%s has no plan(): its options must come from plan() in loadtest/lib/levels.js, and it must export handleSummary (loadtest/K6.md, \"A script of your own\")", path)
	}

	s := &script{
		name:  strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)),
		path:  path,
		needs: read.Ext.Loadtest.Needs,
	}

	s.needs.Accounts = max(1, s.needs.Accounts)
	exactly, err := time.ParseDuration(read.TotalDuration)
	if err != nil {
		return nil, fmt.Errorf("k6's description of %s: %w", path, err)
	}

	s.atMost = exactly.Round(time.Second)

	return s, nil
}

// chooseScripts returns the scripts to play, at least one. A script for which the target misses something is left out,
// with a line that says so, unless the user has named it. A script that cannot be read, or two of the same name, are an
// error.
func (p *player) chooseScripts(ctx context.Context, t target) ([]*script, error) {
	paths, areNamed, err := p.paths()
	if err != nil {
		return nil, err
	}

	var chosen []*script
	pathOf := map[string]string{} // by name
	for _, path := range paths {
		s, err := inspect(ctx, p.k6, path, append(p.environment(), t.settings()...))
		if err != nil {
			return nil, err
		}

		other, isTaken := pathOf[s.name]
		if isTaken {
			return nil, fmt.Errorf("%s and %s have the same name", other, path)
		}

		pathOf[s.name] = path

		missing := t.missingFor(s)
		if missing != "" && !areNamed {
			fmt.Fprintf(p.out, "left out: %s, which needs %s\n", s.name, missing)
			continue
		}

		chosen = append(chosen, s)
	}

	if len(chosen) == 0 {
		return nil, errors.New("there is nothing to play")
	}

	return chosen, nil
}

// paths returns the paths of the scripts, and whether the user has named them (-scripts or -script).
func (p *player) paths() (paths []string, areNamed bool, err error) {
	if len(p.options.own) > 0 {
		for _, path := range p.options.own {
			if _, err := os.Stat(path); err != nil {
				return nil, true, err
			}
			paths = append(paths, path)
		}
		return paths, true, nil
	}

	names := shipped
	if p.options.scripts != "" {
		names = strings.Split(p.options.scripts, ",")
	}

	for _, name := range names {
		if !slices.Contains(shipped, name) {
			return nil, true, fmt.Errorf("-scripts: %q is none of %s; a script of your own is named with -script", name, strings.Join(shipped, ", "))
		}
		paths = append(paths, filepath.Join(p.root, "loadtest", name+".js"))
	}

	return paths, p.options.scripts != "", nil
}
