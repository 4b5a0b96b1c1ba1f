package stack

import (
	"strings"
	"testing"
)

// Scripts' effects are transactions in the append-only file, which the server
// plays as the default user; that one is off, and must be allowed to nevertheless.
func TestStartRedis_WithUsersKeepsTransactionsOverAKill(t *testing.T) {
	t.Parallel()

	passwords := make(map[string]string)
	for _, user := range redisUsers {
		passwords[user] = "secret-of-" + user
	}

	r := startRedis(t, RedisOptions{Users: &Users{Passwords: passwords, Environment: "sandbox"}})
	if _, err := r.Command(t.Context(), "EVAL", "redis.call('SET','a','1') redis.call('SET','b','1') return 1", "0"); err != nil {
		t.Fatal(err)
	}

	r.Kill()
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := r.Command(t.Context(), "EXISTS", "a", "b"); err != nil || got != "2" {
		t.Errorf("of 2 keys there are %s, %v", got, err)
	}

	stranger := *r
	stranger.URL = "redis://" + r.Addr
	if _, err := stranger.Command(t.Context(), "PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("who has not logged in is answered: %v", err)
	}
}
