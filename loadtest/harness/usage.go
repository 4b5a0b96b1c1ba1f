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

// Process is a running process and the name of its figures. The figures of processes with the same name are added up.
type Process struct {
	Name string
	PID  int
}

// Self returns the process that calls it, with the given name for its figures.
func Self(name string) Process { return Process{Name: name, PID: os.Getpid()} }

// Usage holds figures in seconds, by name. A process's name has the CPU time of the process, in steps of 10 ms. "busy" is
// that of all programs and "others" that of programs that were not measured; "idle" is the time in which the processors did
// nothing or waited for a disk. "seconds" is the time on the clock.
type Usage map[string]float64

// Measure returns how much the processes and the machine have used since they started. "seconds" is the time since 1970
// then. Two measurements are compared by Since.
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

// Since returns how much was used between an earlier measurement and this one.
func (u Usage) Since(before Usage) Usage {
	d := Usage{}
	for name := range u {
		d[name] = u[name] - before[name]
	}
	return d
}

// During calls do and returns how much the processes and the machine have used in the meantime. It returns a nil Usage
// with do's error.
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

// Others returns how many processors, on average, were kept busy by programs that were not measured. The Usage must come
// from Since or During.
func (u Usage) Others() float64 { return max(0, u["others"]) / u["seconds"] }

// Watched says how much one process has used while it was watched.
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

// Watch looks at processes, once per interval every, until stop is called or ctx ends. stop looks a last time and returns
// how much each process has used. The figures of a process that has ended are those of the last look at it. A process that
// was never seen is left out.
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

// RedisInfo returns those fields of a server's INFO that are numbers, by name.
func RedisInfo(ctx context.Context, server *stack.Redis) (Usage, error) {
	text, err := server.Command(ctx, "INFO")
	if err != nil {
		return nil, fmt.Errorf("INFO of Redis at %s: %w", server.Addr, err)
	}
	return Numbers(text, ":"), nil
}

// Numbers parses lines of a name and a number with a separator between them, and returns the numbers by name. Other lines
// are left out.
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

// Machine describes the machine of a measurement. A text that could not be found out is "unknown"; such a memory is 0.
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

// DescribeMachine asks the system, git and the Redis server program that the environment variable SERVER names.
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

// firstMatch runs a command and returns the part of its output that the pattern's first group matches. It returns "unknown"
// if the command fails or nothing matches.
func firstMatch(ctx context.Context, pattern, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}

	groups := regexp.MustCompile(pattern).FindSubmatch(out)
	if groups == nil {
		return "unknown"
	}

	return string(groups[1])
}

// String returns the description as one line, for the head of a table.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s, %s, %s, commit %s, %s",
		m.CPU, m.Cores, m.Kernel, m.Go, m.Redis, m.Commit, m.Date.Format(time.DateOnly))
}
