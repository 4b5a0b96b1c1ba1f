package harness

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

// Machine is where a measurement was taken. What could not be found out is "unknown", memory 0.
type Machine struct {
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	Memory uint64    `json:"memory_bytes"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`
	Commit string    `json:"commit"` // "-dirty" when files have changed since
	Date   time.Time `json:"date"`
}

// DescribeMachine asks the system, git and redis-server.
func DescribeMachine(ctx context.Context) Machine {
	m := Machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown", Go: runtime.Version(),
		Redis:  firstMatch(ctx, `\bv=([0-9.]+)`, "redis-server", "--version"),
		Commit: firstMatch(ctx, `^(\S+)`, "git", "describe", "--always", "--dirty", "--abbrev=12"),
		Date:   time.Now().UTC().Truncate(time.Second),
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
		m.CPU = strings.TrimSpace(cpus[0].ModelName)
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.Memory = *memory.MemTotalBytes
	}
	if release, err := fs.SysctlStrings("kernel.osrelease"); err == nil && len(release) > 0 {
		m.Kernel = runtime.GOOS + " " + release[0]
	}
	return m
}

// firstMatch is what the pattern's group finds in the output of a command.
func firstMatch(ctx context.Context, pattern, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	if found := regexp.MustCompile(pattern).FindSubmatch(out); found != nil {
		return string(found[1])
	}
	return "unknown"
}

// String is one line for the head of a table.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, Redis %s, commit %s, %s",
		m.CPU, m.Cores, m.Kernel, m.Go, m.Redis, m.Commit, m.Date.Format(time.DateOnly))
}
