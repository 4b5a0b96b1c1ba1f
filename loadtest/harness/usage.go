package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"vendorapi/internal/stack"
)

// Process is a running process and the name that its figures have. Those of the same name are added up.
type Process struct {
	Name string
	PID  int
}

// Self is this process.
func Self(name string) Process { return Process{name, os.Getpid()} }

// Usage is what has been used, by name: CPU seconds of processes, in steps of 10 ms, those of all processors ("busy"; "idle",
// waiting for a disk included), those of programs that were not measured ("others"), and "seconds" on the clock.
type Usage map[string]float64

// Measure is what the processes and the machine have used since they started.
func Measure(processes ...Process) (Usage, error) {
	u := Usage{"seconds": float64(time.Now().UnixNano()) / 1e9}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}

	for _, p := range processes {
		proc, err := fs.Proc(p.PID)
		var stat procfs.ProcStat
		if err == nil {
			stat, err = proc.Stat()
		}

		if err != nil {
			return u, fmt.Errorf("CPU time of %s: %w", p.Name, err)
		}

		u[p.Name] += stat.CPUTime()
		u["others"] -= stat.CPUTime()
	}

	stat, err := fs.Stat()
	t := stat.CPUTotal
	u["busy"] = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	u["idle"] = t.Idle + t.Iowait
	u["others"] += u["busy"]

	return u, err
}

// Since is what was used between an earlier measurement and this one.
func (u Usage) Since(before Usage) Usage {
	d := Usage{}
	for name := range u {
		d[name] = u[name] - before[name]
	}
	return d
}

// During is what the processes and the machine use while something is done.
func During(do func() error, processes ...Process) (Usage, error) {
	before, err := Measure(processes...)
	if err == nil {
		err = do()
	}

	if err != nil {
		return nil, err
	}

	after, err := Measure(processes...)

	return after.Since(before), err
}

// Others is how many processors were kept busy by programs that were not measured.
func (u Usage) Others() float64 { return max(0, u["others"]) / u["seconds"] }

// Watched is what one process has used while it was watched.
type Watched struct {
	Name  string  `json:"name"`
	Cores float64 `json:"cores"` // how many processors it kept busy, on average

	// Resident memory in bytes.
	Begin      uint64 `json:"memory_at_first"`      // at the first look
	AfterThird uint64 `json:"memory_after_a_third"` // after a third of the looks
	Now        uint64 `json:"memory_at_last"`       // at the last look
	Peak       uint64 `json:"memory_at_most"`       // the most that it ever was

	resident []uint64 // resident memory at each look, in bytes
}

// Watch looks at processes until stop is called, which returns what they have used. A process that ends is known up
// to the last look; one that was never seen is left out.
func Watch(ctx context.Context, every time.Duration, processes ...Process) (stop func() []Watched) {
	ctx, cancel := context.WithCancel(ctx)
	seen := make([]Watched, len(processes))
	begun := make([]Usage, len(processes)) // at the first look

	look := func() {
		for i, p := range processes {
			proc, err := procfs.NewProc(p.PID)
			if err != nil {
				continue
			}

			memory, err := proc.NewStatus()
			used, failure := Measure(p)
			hasEnded := memory.VmHWM == 0 // and waits for its parent
			if err != nil || failure != nil || hasEnded {
				continue
			}

			w := &seen[i]
			if w.Name == "" {
				w.Name, w.Begin, begun[i] = p.Name, memory.VmRSS, used
			}

			used = used.Since(begun[i])
			w.Cores = used[p.Name] / max(used["seconds"], 1e-9)
			w.Now, w.Peak = memory.VmRSS, memory.VmHWM
			w.resident = append(w.resident, memory.VmRSS)
			w.AfterThird = w.resident[len(w.resident)/3]
		}
	}

	look()
	var watching sync.WaitGroup
	watching.Go(func() {
		for Sleep(ctx, every) == nil {
			look()
		}
	})

	return func() []Watched {
		cancel()
		watching.Wait()
		look()
		return slices.DeleteFunc(seen, func(w Watched) bool { return w.Name == "" })
	}
}

// RedisInfo is what a server says of itself (INFO), the fields that are numbers.
func RedisInfo(ctx context.Context, server *stack.Redis) (Usage, error) {
	text, err := server.Command(ctx, "INFO")
	if err != nil {
		return nil, fmt.Errorf("INFO of Redis at %s: %w", server.Addr, err)
	}
	return Numbers(text, ":"), nil
}

// Numbers reads lines of a name and a number; others are left out.
func Numbers(text, separator string) map[string]float64 {
	numbers := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), separator)
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			numbers[name] = v
		}
	}
	return numbers
}

// Machine is where a measurement was taken. What could not be found out is "unknown", memory 0.
type Machine struct {
	CPU    string    `json:"cpu"`
	Cores  int       `json:"cores"`
	Memory uint64    `json:"memory_bytes"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`  // which server, and its version
	Commit string    `json:"commit"` // "-dirty" when files have changed since
	Date   time.Time `json:"date"`
}

// DescribeMachine asks the system, git and the server of Redis that SERVER names.
func DescribeMachine(ctx context.Context) Machine {
	m := Machine{
		CPU:    "unknown",
		Cores:  runtime.NumCPU(),
		Kernel: "unknown",
		Go:     runtime.Version(),
		Redis:  "unknown",
		Commit: firstMatch(ctx, `^(\S+)`, "git", "describe", "--always", "--dirty", "--abbrev=12"),
		Date:   time.Now().UTC().Truncate(time.Second),
	}

	server, err := stack.RedisProgram("server")
	if err == nil {
		m.Redis = firstMatch(ctx, `^(\S+ server v=[0-9.]+)`, server, "--version")
	}

	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}

	cpus, err := fs.CPUInfo()
	if err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
		m.CPU = strings.TrimSpace(cpus[0].ModelName)
	}

	memory, err := fs.Meminfo()
	if err == nil && memory.MemTotalBytes != nil {
		m.Memory = *memory.MemTotalBytes
	}

	release, err := fs.SysctlStrings("kernel.osrelease")
	if err == nil && len(release) > 0 {
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
	return fmt.Sprintf("%s, %d cores, %s, %s, %s, commit %s, %s",
		m.CPU, m.Cores, m.Kernel, m.Go, m.Redis, m.Commit, m.Date.Format(time.DateOnly))
}
