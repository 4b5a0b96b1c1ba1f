package testserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/stack"
)

// databases is how many tests can use the shared Redis in one run.
const databases = 1 << 14

// In database 0: the last database that was given to a test for the first time, and
// those that tests have left, the oldest first, which are given again when all have been
// used: what a test leaves running disturbs nobody soon.
const (
	counterKey = "testserver:databases"
	leftKey    = "testserver:left"
)

// Redis is an empty database of the shared redis-server, which has the users of
// configs/redis-users.acl with the sandbox's keys. Each test has its own; it is
// emptied when the test ends.
type Redis struct {
	URL string // the operator's, who may do everything
	// Client is the operator's connection, to look at or to break what the programs keep there.
	Client *redis.Client
}

// NewRedis returns an empty database.
func NewRedis(t testing.TB) *Redis {
	t.Helper()
	base, err := sharedRedis()
	must(t, err)
	options, err := redis.ParseURL(base)
	must(t, err)
	options.ReadTimeout = Timeout // the scripts of some tests write much
	root := redis.NewClient(options)
	defer func() { _ = root.Close() }() // nothing is written by it
	n, err := root.Incr(t.Context(), counterKey).Result()
	if err == nil && n >= databases {
		n, err = root.LPop(t.Context(), leftKey).Int64()
	}

	if err != nil {
		t.Fatalf("a database of the shared Redis, of %d: %v", databases, err)
	}

	options.DB = int(n)
	r := &Redis{URL: base + "/" + strconv.FormatInt(n, 10), Client: redis.NewClient(options)}
	t.Cleanup(func() {
		ctx := context.Background() // the test's own has ended
		_, err := r.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.FlushDB(ctx)
			p.Select(ctx, 0)
			p.RPush(ctx, leftKey, n)
			return nil
		})
		if err := errors.Join(err, r.Client.Close()); err != nil {
			t.Error(err)
		}
	})

	return r
}

// URLFor is where a user of configs/redis-users.acl reaches the database.
func (r *Redis) URLFor(user string) string {
	u, err := url.Parse(r.URL)
	if err != nil {
		panic(err) // composed by NewRedis
	}
	u.User = url.UserPassword(user, passwords()[user])
	return u.String()
}

// Do sends one command as the operator; an error reply fails the test.
func (r *Redis) Do(t testing.TB, args ...any) any { t.Helper(); return Do(t, r.Client, args...) }

// Do sends one command; an error reply fails the test.
func Do(t testing.TB, client *redis.Client, args ...any) any {
	t.Helper()
	reply, err := client.Do(context.WithoutCancel(t.Context()), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// DedicatedRedis starts a redis-server of the test's own, with the durability of
// configs/redis.conf unless the options say otherwise. An empty Dir is a temporary
// one. It ends with the test.
func DedicatedRedis(t testing.TB, o stack.RedisOptions) *stack.Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}

	o.ClientTimeout = Timeout
	r, err := stack.StartRedis(t.Context(), o)
	must(t, err)
	t.Cleanup(r.Stop)

	return r
}

// passwords are those of the shared server's users: no secrets, since the server
// listens on loopback and runs as long as the tests.
func passwords() map[string]string {
	p := map[string]string{}
	for _, user := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser, stack.BackupUser, stack.OperatorUser} {
		p[user] = "password-of-" + user
	}
	return p
}

// sharedRedis is the operator's URL. Its end reports what the programs' users were
// denied: a part of the tests is held to the shipped rights like all of them.
var sharedRedis = shared(redisVariable, func(dir string) (string, func() error, error) {
	server, err := startRedis(context.Background(), dir)
	if err != nil {
		return "", nil, err
	}
	return server.URL, func() error {
		defer server.Stop()
		return Denied(context.Background(), server)
	}, nil
})

// startRedis starts the server that tests share. It keeps nothing on disk. Beside
// the shipped rights its users may SELECT, because every test has a database.
func startRedis(ctx context.Context, dir string) (*stack.Redis, error) {
	server, err := stack.StartRedis(ctx, stack.RedisOptions{
		Dir: dir,
		// On a machine full of other work a script may stand still for a second.
		Extra: []string{"--databases", strconv.Itoa(databases), "--appendonly", "no", "--busy-reply-threshold", "60000"},
		Users: &stack.Users{Passwords: passwords(), Environment: "sandbox"},

		ClientTimeout: Timeout,
	})
	if err != nil {
		return nil, err
	}

	for user := range passwords() {
		if _, err := server.Command(ctx, "ACL", "SETUSER", user, "+select"); err != nil {
			server.Stop()
			return nil, fmt.Errorf("the shared Redis: %w", err)
		}
	}

	return server, nil
}

// Denied is an error when users of the shared server have tried what they may not
// do since it started: when its ACL LOG is not empty.
func Denied(ctx context.Context, server *stack.Redis) error {
	denied, err := server.Command(ctx, "ACL", "LOG")
	denied = strings.TrimSpace(denied)
	if err == nil && denied != "" {
		return fmt.Errorf("denied by Redis (ACL LOG) to programs that need it:\n%s", denied)
	}
	return err
}
