package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// usage is what the processes have used so far, in seconds of CPU.
type usage struct {
	worker, receiver, redis float64
	busy                    float64 // the whole machine
}

// takeUsage reads the processes' times, which come in steps of 10 ms. The
// receivers live in this process.
func takeUsage(worker, redis int) (u usage, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return u, err
	}
	for _, p := range []struct {
		pid  int
		into *float64
	}{{worker, &u.worker}, {os.Getpid(), &u.receiver}, {redis, &u.redis}} {
		if *p.into, err = cpuOf(fs, p.pid); err != nil {
			return u, err
		}
	}
	stat, err := fs.Stat()
	if err != nil {
		return u, err
	}
	t := stat.CPUTotal
	u.busy = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	return u, nil
}

func cpuOf(fs procfs.FS, pid int) (float64, error) {
	p, err := fs.Proc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.CPUTime(), err
}

func (u usage) since(before usage) usage {
	return usage{worker: u.worker - before.worker, receiver: u.receiver - before.receiver,
		redis: u.redis - before.redis, busy: u.busy - before.busy}
}

// others is what programs took that have nothing to do with the measurement.
func (u usage) others() float64 { return max(0, u.busy-u.worker-u.receiver-u.redis) }

// redisInfo is the numbers of INFO. It is asked in Redis's inline form, because
// the client library has no place outside the ledger.
func redisInfo(ctx context.Context, addr string) (map[string]float64, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	if _, err := io.WriteString(conn, "INFO\r\n"); err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	in := bufio.NewReader(conn)
	head, err := in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	length, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil {
		return nil, fmt.Errorf("INFO: it answered %q", head)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(in, text); err != nil {
		return nil, fmt.Errorf("INFO: %w", err)
	}
	info := map[string]float64{}
	for l := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(l), ":")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			info[name] = v
		}
	}
	return info, nil
}

// settleRedis waits until Redis neither rewrites its file nor moves its keys,
// so that a measurement pays for its own work only.
func settleRedis(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		info, err := redisInfo(ctx, addr)
		if err != nil {
			return err
		}
		if info["aof_rewrite_in_progress"] == 0 && info["aof_rewrite_scheduled"] == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis still rewrites its file: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
