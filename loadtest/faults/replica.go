package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// addReplica starts a server without data that follows the master, and returns when it has all of it.
func (s *system) addReplica(ctx context.Context) (err error) {
	if s.master == nil {
		s.master, err = failpoint.NewProxy(s.redis.Addr)
		if err != nil {
			return err
		}

		s.ends = append(s.ends, s.master.Refuse)
	}

	server := s.server
	s.servers++
	server.Dir = fmt.Sprintf("%s-%d", server.Dir, s.servers)
	replica, err := stack.StartRedis(ctx, server)
	if err != nil {
		return err
	}

	s.ends = append(s.ends, replica.Stop)
	s.mu.Lock()
	s.replica = replica
	s.mu.Unlock()

	return replica.Follow(ctx, s.redis)
}

// redisProxies lead programs to the master.
func (s *system) redisProxies() []*failpoint.Proxy {
	all := []*failpoint.Proxy{s.master}
	for name, p := range s.proxies {
		if strings.HasSuffix(name, "-redis") {
			all = append(all, p)
		}
	}
	return all
}

// killMachine kills the master and takes its disk away. Half of the time its replica has not received the last writes.
func (in *injection) killMachine(ctx context.Context) error {
	if err := in.replica.AwaitSynced(ctx); err != nil {
		return err
	}

	if in.random.IntN(2) == 0 {
		if err := in.signal(in.replica.Program, syscall.SIGSTOP); err != nil {
			return err
		}
		in.wait(ctx, 0, 300*time.Millisecond)
	}

	in.redis.Kill()
	if err := in.signal(in.replica.Program, syscall.SIGCONT); err != nil {
		return err
	}

	return errors.Join(in.replica.Follow(ctx, nil), in.replaceMaster(ctx))
}

// split promotes the replica while the master lives, and leads some programs to it at once, the others later: as when a
// master is cut off from its replica, but not from all programs.
func (in *injection) split(ctx context.Context) error {
	if err := errors.Join(in.replica.AwaitSynced(ctx), in.replica.Follow(ctx, nil)); err != nil {
		return err
	}

	in.wait(ctx, 0, time.Second)
	for _, p := range in.redisProxies() {
		if in.random.IntN(2) == 0 {
			p.Redirect(in.replica.Addr)
		}
	}

	in.wait(ctx, 500*time.Millisecond, 2*time.Second)
	in.redis.Kill()

	return in.replaceMaster(ctx)
}

// replaceMaster leads all programs to the promoted replica, in place of a master that is dead, and gives it a replica.
func (in *injection) replaceMaster(ctx context.Context) error {
	in.times.Add(1)
	gone := in.redis.Dir
	in.mu.Lock()
	in.redis = in.replica
	in.mu.Unlock()
	for _, p := range in.redisProxies() {
		p.Redirect(in.redis.Addr)
	}
	return errors.Join(os.RemoveAll(gone), in.addReplica(ctx))
}
