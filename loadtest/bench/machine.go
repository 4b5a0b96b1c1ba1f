package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// machine is where and on what the figures were taken. What cannot be found
// out is "unknown".
type machine struct {
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`
	Commit string    `json:"commit"` // "-dirty" when files have changed since
	Date   time.Time `json:"date"`
}

func describeMachine(ctx context.Context) (machine, error) {
	m := machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version(),
		Commit: "unknown", Date: time.Now().UTC().Truncate(time.Second),
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
			m.CPU = cpus[0].ModelName
		}
		if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil && len(release) > 0 {
			m.Kernel = runtime.GOOS + " " + release[0]
		}
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	out, err := exec.CommandContext(ctx, "redis-server", "--version").Output()
	if err != nil {
		return m, fmt.Errorf("redis-server: %w (`make deps` installs it)", err)
	}
	m.Redis = redisVersion(string(out))
	return m, nil
}

var redisVersionPattern = regexp.MustCompile(`\bv=([0-9.]+)`)

func redisVersion(said string) string {
	if found := redisVersionPattern.FindStringSubmatch(said); found != nil {
		return found[1]
	}
	return "unknown"
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, Redis %s, commit %s, %s",
		m.CPU, m.Cores, m.Kernel, m.Go, m.Redis, m.Commit, m.Date.Format(time.DateOnly))
}
