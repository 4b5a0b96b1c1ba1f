package world

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// A Server is the redis-server of one process of the simulation. Its clock stands still at what StopClock has
// said last, and only one goroutine outside of the bubble speaks with it.
type Server struct {
	*stack.Redis
	shim   *failpoint.Shim
	client *redis.Client
	jobs   chan func(*redis.Client)
	done   chan struct{}

	// watching has a connection for each caller that has sent WATCH: a transaction must not see that of another one.
	watching map[string]*redis.Conn
}

// StartServer starts a redis-server in dir. Nothing of it is on the disk: a loss of data is what `make faults` plays.
func StartServer(ctx context.Context, dir string) (*Server, error) {
	shim, err := failpoint.NewShim(ctx, filepath.Join(dir, "shim"))
	if err != nil {
		return nil, err
	}
	// With these sizes every hash, set and sorted set lists its members in an order that depends on the commands
	// alone, not on how this process hashes.
	const all = "1000000"
	// jemalloc's thread sleeps until times of the stopped clock, so it would never sleep, and take more than the server.
	server, err := stack.StartRedis(ctx, stack.RedisOptions{
		Dir:  filepath.Join(dir, "redis"),
		Unix: true,
		Env:  shim.Env(),
		Extra: []string{"--appendonly", "no", "--save", "", "--enable-debug-command", "yes", "--jemalloc-bg-thread", "no",
			"--hash-max-listpack-entries", all, "--hash-max-listpack-value", all, "--zset-max-listpack-entries", "128"},
	})
	if err != nil {
		return nil, errors.Join(err, shim.Close())
	}
	client, err := server.Client()
	if err != nil {
		server.Stop()
		return nil, err
	}

	s := &Server{Redis: server, shim: shim, client: client, jobs: make(chan func(*redis.Client)), done: make(chan struct{})}
	go s.work()
	return s, nil
}

// work runs the jobs outside of the bubble, where the time of the network is real.
func (s *Server) work() {
	for job := range s.jobs {
		job(s.client)
		s.done <- struct{}{}
	}
}

// do runs one job. The caller is not durably blocked meanwhile, so time in the bubble stands still.
func (s *Server) do(job func(*redis.Client)) {
	s.jobs <- job
	<-s.done
}

// at sets the server's clock.
func (s *Server) at(now time.Time) {
	if err := s.shim.StopClock(now); err != nil {
		panic(err) // a file of this process cannot be written
	}
}

// empty makes the server as it was when it had just been started. Keys are removed at their expiry only when
// somebody asks for them, because when the server looks for itself is a matter of its own clock.
func (s *Server) empty(ctx context.Context) error {
	var err error
	s.do(func(client *redis.Client) {
		pipe := client.Pipeline()
		pipe.FlushAll(ctx)
		pipe.FunctionFlush(ctx)
		pipe.Do(ctx, "debug", "set-active-expire", "0")
		_, err = pipe.Exec(ctx)
	})
	if err != nil {
		return fmt.Errorf("emptying redis: %w", err)
	}
	return nil
}

// Close ends the server.
func (s *Server) Close() {
	close(s.jobs)
	_ = s.client.Close() // nothing waits for it
	s.Stop()
	_ = s.shim.Close() // a file of a few bytes
}
