package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"

	"github.com/prometheus/procfs"

	"vendorapi/loadtest/k6/report"
)

// describeMachine is where the figures were taken. What cannot be found out is
// left out.
func describeMachine(ctx context.Context) []report.Fact {
	facts := []report.Fact{{Name: "Processors", Value: fmt.Sprint(runtime.NumCPU())}}
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, report.Fact{Name: name, Value: value})
		}
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			add("Model", cpus[0].ModelName)
		}
		if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			add("Memory", fmt.Sprintf("%.1f GB", float64(*memory.MemTotalBytes)/1e9))
		}
		if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil && len(release) > 0 {
			add("System", runtime.GOOS+" "+release[0])
		}
	}
	add("Go", runtime.Version())
	add("Redis", firstMatch(ctx, `\bv=([0-9.]+)`, "redis-server", "--version"))
	add("k6", k6Version)
	add("Commit", firstMatch(ctx, `^(\S+)`, "git", "describe", "--always", "--dirty", "--abbrev=12"))
	return facts
}

// firstMatch is what the pattern's group finds in what a command says; empty
// when it cannot be asked.
func firstMatch(ctx context.Context, pattern, name string, args ...string) string {
	said, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	if found := regexp.MustCompile(pattern).FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}
