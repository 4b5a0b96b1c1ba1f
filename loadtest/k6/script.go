package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shipped are the scripts of loadtest/ in the order in which they are played.
var shipped = []string{"smoke", "burst", "polling", "steady", "evening", "mixed", "soak", "ramp", "spike", "failover"}

// script is one of them, or one of the user's.
type script struct {
	name  string // without .js
	path  string
	needs needs

	// atMost is how long k6 lets its scenarios take.
	atMost time.Duration
}

// needs are what a script asks for (plan() in loadtest/lib/levels.js).
type needs struct {
	Accounts int    // how many it plays; a deployment may have others
	Orders   int    // how many an account must be allowed in 10 s; 0: what the contract allows
	Courier  string // "manual": no sandbox courier may deliver its orders
	Outages  bool   // programs have to fail while it runs
	Fleet    bool   // it plays a fleet, too
}

// inspect asks k6 what a script is. env are the settings that it will have.
func inspect(ctx context.Context, k6, path string, env []string) (*script, error) {
	cmd := exec.CommandContext(ctx, k6, "inspect", "--execution-requirements", "--include-system-env-vars", path)
	cmd.Env = env
	var complaints bytes.Buffer
	cmd.Stderr = &complaints

	said, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("k6 cannot read %s: %w\n%s", path, err, bytes.TrimSpace(complaints.Bytes()))
	}
	var read struct {
		TotalDuration string
		Ext           struct {
			Loadtest *struct{ Needs needs }
		}
	}
	if err := json.Unmarshal(said, &read); err != nil {
		return nil, fmt.Errorf("k6's description of %s: %w", path, err)
	}
	if read.Ext.Loadtest == nil {
		return nil, fmt.Errorf("%s has no plan(): its options must come from plan() in loadtest/lib/levels.js, and it must export handleSummary (loadtest/README.md, \"A script of your own\")", path)
	}

	s := &script{
		name:  strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)),
		path:  path,
		needs: read.Ext.Loadtest.Needs,
	}
	s.needs.Accounts = max(1, s.needs.Accounts)
	s.atMost, err = time.ParseDuration(read.TotalDuration)
	if err != nil {
		return nil, fmt.Errorf("k6's description of %s: %w", path, err)
	}
	return s, nil
}

// chooseScripts returns the scripts to play, which all exist and can be read. Of those that were not asked for by
// name, it leaves out what the target cannot give them, and says so.
func (p *player) chooseScripts(ctx context.Context, t target) ([]*script, error) {
	paths, asked, err := p.paths()
	if err != nil {
		return nil, err
	}

	var chosen []*script
	names := map[string]string{}
	for _, path := range paths {
		s, err := inspect(ctx, p.k6, path, append(p.environment(), t.settings()...))
		if err != nil {
			return nil, err
		}
		if other, taken := names[s.name]; taken {
			return nil, fmt.Errorf("%s and %s have the same name", other, path)
		}
		names[s.name] = path

		lacking := t.lacks(s)
		if lacking != "" && !asked {
			fmt.Fprintf(p.out, "left out: %s, which needs %s\n", s.name, lacking)
			continue
		}
		chosen = append(chosen, s)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("there is nothing to play")
	}
	return chosen, nil
}

// paths returns the files of the scripts, and whether they were asked for by name.
func (p *player) paths() (paths []string, asked bool, err error) {
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
