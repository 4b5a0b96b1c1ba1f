package testserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/stack"
)

func TestMain(m *testing.M) { Main(m) }

func TestNewRedis_IsEmptyAndNobodyElses(t *testing.T) {
	const tests = 8
	given := make(chan *Redis, tests)
	t.Run("tests", func(t *testing.T) {
		for range tests {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				r := NewRedis(t)
				if n := r.Do(t, "DBSIZE"); n != int64(0) {
					t.Errorf("%s has %v keys", r.URL, n)
				}
				r.Do(t, "SET", "key", r.URL)
				given <- r
			})
		}
	})

	close(given)
	seen := map[int]bool{0: true}
	root := NewRedis(t)
	for r := range given {
		database := r.Client.Options().DB
		if seen[database] {
			t.Errorf("database %d was given twice", database)
		}

		seen[database] = true
		left := root.Do(t, "EVAL", "redis.call('SELECT', ARGV[1]) return redis.call('DBSIZE')", 0, database)
		if left != int64(0) {
			t.Errorf("database %d was left with %v keys", database, left)
		}
	}
}

// A program may do in its database what the shipped rights allow, and what they
// do not is seen at the end of a run.
func TestDenied_TellsWhatAProgramMayNotDo(t *testing.T) {
	server, err := startRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(server.Stop)
	options, err := redis.ParseURL(server.URLFor(stack.WorkerUser) + "/7")
	if err != nil {
		t.Fatal(err)
	}

	options.DisableIdentity = true // as programs do
	program := redis.NewClient(options)
	defer program.Close()
	if err := program.Get(t.Context(), "{s0}o").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a key of the sandbox: %v", err)
	}
	if err := Denied(t.Context(), server); err != nil {
		t.Errorf("nothing was denied: %v", err)
	}
	if program.ConfigGet(t.Context(), "*").Err() == nil {
		t.Error("the worker reads Redis's configuration")
	}

	if err := Denied(t.Context(), server); err == nil || !strings.Contains(err.Error(), "config") || !strings.Contains(err.Error(), stack.WorkerUser) {
		t.Errorf("denied: %v", err)
	}
}
