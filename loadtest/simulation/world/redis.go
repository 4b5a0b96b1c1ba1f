package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
)

// A Server is the redis-server of one process of the simulation. Its clock stands still at what StopClock has
// said last, and only the root of the bubble speaks with it.
type Server struct {
	*stack.Redis
	shim   *failpoint.Shim
	client *redis.Client

	// watching has a connection for each caller that has sent WATCH: a transaction must not see that of another one.
	watching map[string]*redis.Conn
}

// StartServer starts a redis-server in dir, under the library of failpoint.BuildShim. Nothing of it is on the disk: a
// loss of data is what `make faults` plays.
func StartServer(ctx context.Context, library, dir string) (*Server, error) {
	shim, err := failpoint.OpenShim(library, dir)
	if err != nil {
		return nil, err
	}

	// With these sizes every hash, set and sorted set lists its members in an order that depends on the commands
	// alone, not on how this process hashes.
	const all = "1000000"
	// Under a stopped clock jemalloc's background thread would not sleep but spin, and use more of a core than the server.
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

	options, err := redis.ParseURL(server.URL)
	if err != nil {
		server.Stop()
		return nil, err
	}

	options.Protocol, options.DisableIdentity = 2, true
	options.MaxRetries = -1      // the simulator decides what is sent again
	options.ConnMaxIdleTime = -1 // connections stay, although hours pass in the bubble
	options.Dialer = func(_ context.Context, _, path string) (net.Conn, error) { return dial(path) }

	return &Server{Redis: server, shim: shim, client: redis.NewClient(options)}, nil
}

// newRedisClient returns a client whose commands are passed to the simulator, like those of a ledger. Nothing listens at
// its address.
func (s *simulator) newRedisClient(from *actor) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr:                     "simulation:6379",
		Protocol:                 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	client.AddHook(s.hook(from))
	return client
}

// at sets the server's clock.
func (s *Server) at(now time.Time) { s.shim.StopClock(now) }

// empty makes the server as it was when it had just been started. Keys are removed at their expiry only when
// somebody asks for them, because when the server looks for itself is a matter of its own clock.
func (s *Server) empty(ctx context.Context) error {
	pipe := s.client.Pipeline()
	pipe.FlushAll(ctx)
	pipe.FunctionFlush(ctx)
	pipe.Do(ctx, "debug", "set-active-expire", "0")
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("emptying redis: %w", err)
	}
	return nil
}

// Close ends the server.
func (s *Server) Close() {
	_ = s.client.Close() // nothing waits for it
	s.Stop()
	_ = s.shim.Close() // a file of a few bytes
}
