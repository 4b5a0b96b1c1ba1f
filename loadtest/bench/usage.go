package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"vendorapi/internal/stack"
)

// usage is what the programs have used so far. CPU is in seconds, Redis's that
// of its main threads alone: what one partition can have of a machine.
type usage struct {
	redis, gateway, worker, generator float64
	busy, idle                        float64 // CPU of the whole machine; waiting for a disk is idle
	redisMemory                       float64 // bytes that Redis has allocated
	aof                               float64 // bytes of append-only files
	aofBase                           float64 // of which were there at the last rewrite
	redisIn, redisOut                 float64 // bytes on Redis's connections
	flushes                           float64 // of this machine's disks
}

// takeUsage reads everything once. gateways may be several, redises too.
func takeUsage(ctx context.Context, redises []*stack.Redis, gateways []*stack.Program, worker *stack.Program) (usage, error) {
	var u usage
	for _, server := range redises {
		text, err := server.Command(ctx, "INFO")
		if err != nil {
			return u, fmt.Errorf("INFO of Redis at %s: %w", server.Addr, err)
		}
		info := parseInfo(text)
		u.redis += info["used_cpu_sys_main_thread"] + info["used_cpu_user_main_thread"]
		u.redisMemory += info["used_memory"]
		u.aof += info["aof_current_size"]
		u.aofBase += info["aof_base_size"]
		u.redisIn += info["total_net_input_bytes"]
		u.redisOut += info["total_net_output_bytes"]
	}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	for _, g := range gateways {
		seconds, err := cpuOf(fs, g.PID())
		if err != nil {
			return u, err
		}
		u.gateway += seconds
	}
	if u.worker, err = cpuOf(fs, worker.PID()); err != nil {
		return u, err
	}
	self, err := fs.Self()
	if err != nil {
		return u, err
	}
	if u.generator, err = cpuOf(fs, self.PID); err != nil {
		return u, err
	}
	if u.busy, u.idle, err = machineCPU(fs); err != nil {
		return u, err
	}
	u.flushes, err = diskFlushes()
	return u, err
}

// machineCPU is what all processors did since the machine's start, in seconds.
func machineCPU(fs procfs.FS) (busy, idle float64, err error) {
	stat, err := fs.Stat()
	if err != nil {
		return 0, 0, err
	}
	t := stat.CPUTotal
	return t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal, t.Idle + t.Iowait, nil
}

// cpuOf is the CPU time of a process in seconds, in steps of 10 ms.
func cpuOf(fs procfs.FS, pid int) (float64, error) {
	p, err := fs.Proc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}

// processCPU is cpuOf a running program.
func processCPU(p *stack.Program) (float64, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	return cpuOf(fs, p.PID())
}

// diskFlushes counts the flushes of all disks since the machine's start; an
// fsync is one. 0 on kernels that do not count them.
func diskFlushes() (float64, error) {
	fs, err := blockdevice.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	disks, err := fs.ProcDiskstats()
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, d := range disks {
		total += float64(d.FlushRequestsCompleted)
	}
	return total, nil
}

// since is what was used between an earlier look and this one; memory and files
// may have shrunk.
func (u usage) since(before usage) usage {
	return usage{
		redis: u.redis - before.redis, gateway: u.gateway - before.gateway,
		worker: u.worker - before.worker, generator: u.generator - before.generator,
		busy: u.busy - before.busy, idle: u.idle - before.idle,
		redisMemory: u.redisMemory - before.redisMemory, aof: u.aof - before.aof, aofBase: u.aofBase - before.aofBase,
		redisIn: u.redisIn - before.redisIn, redisOut: u.redisOut - before.redisOut, flushes: u.flushes - before.flushes,
	}
}

// parseInfo keeps the fields whose value is a number.
func parseInfo(text string) map[string]float64 {
	info := map[string]float64{}
	for l := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), ":")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			info[name] = v
		}
	}
	return info
}
