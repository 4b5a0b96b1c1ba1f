package systemtest

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// sandbox are users with passwords that nobody has to guess.
func sandbox() *stack.Users {
	return &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		"gateway": "for-gateway", "worker": "for-worker", "reporting": "for-reporting",
		"backup": "for-backup", "operator": "for-operator",
	}}
}

func template(t *testing.T) []byte { return []byte(readFile(t, "configs/redis-users.acl")) }

// The containers fill the template in with a shell script, `make run` with Go.
func TestRender_ScriptAndGoAgree(t *testing.T) {
	t.Parallel()

	for _, environment := range []string{"sandbox", "production"} {
		u := sandbox()
		u.Environment = environment
		u.Passwords["worker"] = `of / & \1 $HOME "people"`
		script := exec.Command("sh", moduleFile(t, "configs/redis-users.sh"))
		script.Stdin = bytes.NewReader(template(t))
		script.Env = append(os.Environ(), "ENVIRONMENT="+environment)
		for user, password := range u.Passwords {
			script.Env = append(script.Env, "REDIS_"+strings.ToUpper(user)+"_PASSWORD="+password)
		}

		got, err := script.Output()
		must(t, err)
		want, err := stack.RenderUsers(template(t), *u)
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the script says\n%.400s\nGo says\n%.400s", environment, got, want)
		}

		for user, password := range u.Passwords {
			if bytes.Contains(got, []byte(password)) {
				t.Errorf("the file holds the password of %s", user)
			}
		}
	}
}

func TestRender_RefusesWhatIsMissing(t *testing.T) {
	t.Parallel()

	u := sandbox()
	delete(u.Passwords, "worker")
	if _, err := stack.RenderUsers(template(t), *u); err == nil || !strings.Contains(err.Error(), "no password for worker") {
		t.Errorf("without a password: %v", err)
	}

	u.Environment = "staging"
	if _, err := stack.RenderUsers(template(t), *u); err == nil || !strings.Contains(err.Error(), "staging") {
		t.Errorf("another environment: %v", err)
	}

	script := exec.Command("sh", moduleFile(t, "configs/redis-users.sh"))
	script.Stdin, script.Env = bytes.NewReader(template(t)), []string{"PATH=" + os.Getenv("PATH"), "ENVIRONMENT=sandbox"}
	if out, err := script.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("REDIS_GATEWAY_PASSWORD")) {
		t.Errorf("the script without passwords: %v, %s", err, out)
	}
}

// guarded is a Redis whose users have these passwords.
func guarded(t *testing.T) *stack.Redis {
	return testserver.DedicatedRedis(t, stack.RedisOptions{Users: sandbox()})
}

func TestUsers_NobodyComesInWithoutAPassword(t *testing.T) {
	t.Parallel()

	r := guarded(t)
	for _, command := range []string{"PING", "INFO", "GET {s00}ox", "CONFIG GET *", "ACL LIST", "SHUTDOWN NOSAVE", "EVAL \"return 1\" 0"} {
		if reply := onceAs(t, r.Addr, "", command); !strings.HasPrefix(reply, "-NOAUTH") {
			t.Errorf("%q: %s", command, reply)
		}
	}

	for _, login := range []string{"AUTH gateway wrong", "AUTH default \"\"", "AUTH for-gateway", "AUTH gateway for-worker", "AUTH root x", "HELLO 3 AUTH gateway wrong"} {
		if reply := onceAs(t, r.Addr, "", login); !strings.HasPrefix(reply, "-WRONGPASS") {
			t.Errorf("%q: %s", login, reply)
		}
	}
}

// As docs/redis-servers.md says: the new password is added, programs are restarted one after
// the other, the old one is removed.
func TestUsers_PasswordsChangeWithoutAnInterruption(t *testing.T) {
	t.Parallel()

	r := guarded(t)
	old := dial(t, r.Addr)
	old.say("AUTH gateway for-gateway")
	_, err := r.Command(t.Context(), "ACL", "SETUSER", "gateway", ">next")
	must(t, err)
	for _, password := range []string{"for-gateway", "next"} {
		if reply := dial(t, r.Addr).say("AUTH gateway " + password); reply != "+OK" {
			t.Errorf("with both: %s: %s", password, reply)
		}
	}

	_, err = r.Command(t.Context(), "ACL", "SETUSER", "gateway", "<for-gateway")
	must(t, err)
	if reply := dial(t, r.Addr).say("AUTH gateway for-gateway"); !strings.HasPrefix(reply, "-WRONGPASS") {
		t.Errorf("the old one afterwards: %s", reply)
	}
	if reply := old.say("PING"); reply != "+PONG" {
		t.Errorf("who was there before: %s", reply)
	}
	if _, err := r.Command(t.Context(), "ACL", "SAVE"); err != nil {
		t.Errorf("keeping it over a restart: %v", err)
	}

	r.Kill()
	must(t, r.Start(t.Context()))
	if reply := dial(t, r.Addr).say("AUTH gateway next"); reply != "+OK" {
		t.Errorf("after a restart: %s", reply)
	}
}

// connection uses Redis's inline form.
type connection struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr string) *connection {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(testserver.Timeout)))

	return &connection{t, conn, bufio.NewReader(conn)}
}

// say sends a command and returns the first line of the reply; with more than one
// line, the connection is good for nothing afterwards.
func (c *connection) say(command string) string {
	c.t.Helper()
	_, err := fmt.Fprintf(c.conn, "%s\r\n", command)
	must(c.t, err)
	line, err := c.in.ReadString('\n')
	must(c.t, err)

	return strings.TrimSpace(line)
}

// onceAs sends one command over a connection of its own.
func onceAs(t *testing.T, addr, user, command string) string {
	t.Helper()
	c := dial(t, addr)
	if user != "" {
		if reply := c.say("AUTH " + user + " for-" + user); reply != "+OK" {
			t.Fatalf("AUTH as %s: %s", user, reply)
		}
	}

	reply := c.say(command)
	c.conn.Close()

	return reply
}

// dangerous is refused to every program.
var dangerous = []string{
	"FLUSHALL", "FLUSHDB", "KEYS *", "CONFIG GET *", "CONFIG SET appendonly no", "DEBUG SLEEP 0", "ACL LIST", "ACL WHOAMI", "ACL SETUSER me on",
	"SHUTDOWN NOSAVE", "MONITOR", "CLIENT LIST", "CLIENT KILL TYPE normal", "REPLICAOF 127.0.0.1 1", "MIGRATE 127.0.0.1 1 {s00}ox 0 1", "RESTORE {s00}ox 0 x",
	"DUMP {s00}ox", "SELECT 1", "SWAPDB 0 1", "BGREWRITEAOF", "BGSAVE", "SAVE", "SCRIPT FLUSH", "FUNCTION FLUSH", "FUNCTION DUMP", "MODULE LIST", "LATENCY RESET",
	"SLOWLOG GET", "MEMORY USAGE {s00}ox", "OBJECT ENCODING {s00}ox", "RANDOMKEY", "DBSIZE", "SUBSCRIBE x", "PUBLISH x y", "CLUSTER RESET", "CLUSTER FORGET x",
	// The other environment's keys, and keys of nobody.
	"GET sessions:{pg}x", "SET sessions:{pg}x 1", "DEL sessions:{pg}x",
	"GET books:{pg}head", "SET books:{pg}head 1", `EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{pg}head`,
	"GET {p00}ox", "SET {p00}ox 1", "HGETALL {pg}meta", "XADD {p00}e * e x", "XGROUP CREATE {p00}e g 0 MKSTREAM", "FCALL x 1 {p00}ox", "GET other", "SET other 1",
}

// rights are what each user is refused, and beside it what it may: without the
// second a Redis that refuses every command would pass.
var rights = map[string]struct{ refused, allowed []string }{
	"gateway": {
		refused: []string{
			"XTRIM {s00}e MAXLEN 0", "XDEL {s00}e 0-1", "XGROUP CREATE {s00}e g 0 MKSTREAM", "XGROUP DESTROY {s00}e status",
			"XREADGROUP GROUP status me STREAMS {s00}e >", "XACK {s00}e status 0-1", "XSETID {s00}e 9-9", "SCAN 0", "SET rate:{p00}x 1",
			"GET books:{sg}head", "SET books:{sg}head 1", "DEL books:{sg}head", "COPY {sg}x books:{sg}head", "RENAME {sg}x books:{sg}head",
			`EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{sg}head`,
			"GET sessions:{sg}x", "SET sessions:{sg}x 1", "DEL sessions:{sg}x", "EXISTS sessions:{sg}x", "TTL sessions:{sg}x", "COPY {sg}x sessions:{sg}x",
			"RENAME {sg}x sessions:{sg}x", "COPY sessions:{sg}x {sg}x", `EVAL "return redis.call('SET',KEYS[1],'1')" 1 sessions:{sg}x`,
			"DEL rate:sessions:{sg}attempts:x", "SET rate:sessions:{sg}attempts:x 1",
			"SYNC", `EVAL "return redis.call('FLUSHALL')" 0`, `EVAL "return redis.call('XTRIM','{s00}e','MAXLEN','0')" 0`,
		},
		allowed: []string{"PING", "INFO server", "SET {s00}ox 1", "XADD {s00}e * e x", "HSET {sg}fleets x 1", "GET {s00}ox", "SET rate:{sg}logins:x 1", "FUNCTION LIST"},
	},
	"worker": {
		refused: []string{
			"XDEL {s00}e 0-1", "XSETID {s00}e 9-9", "SCAN 0", "MSET {s00}oa 1 {s00}ob 2", "SYNC",
			"GET books:{sg}head", "SET books:{sg}head 1", "DEL books:{sg}head", "COPY {sg}x books:{sg}head", "RENAME {sg}x books:{sg}head",
			`EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{sg}head`,
			"GET sessions:{sg}x", "SET sessions:{sg}x 1", "DEL sessions:{sg}x", "EXISTS sessions:{sg}x", "TTL sessions:{sg}x", "COPY {sg}x sessions:{sg}x",
			"RENAME {sg}x sessions:{sg}x", "COPY sessions:{sg}x {sg}x", `EVAL "return redis.call('SET',KEYS[1],'1')" 1 sessions:{sg}x`,
			"DEL rate:sessions:{sg}attempts:x", "SET rate:sessions:{sg}attempts:x 1",
		},
		allowed: []string{"PING", "INFO server", "XTRIM {s00}e MAXLEN 9", "SET {s00}oy 1", "XGROUP CREATE {s00}e status 0 MKSTREAM", "XGROUP SETID {s00}e status 0", "XREAD STREAMS {s00}e 0", "GET {s00}ox"},
	},
	"reporting": {
		refused: []string{
			"SET {s00}ox 1", "DEL {s00}ox", "APPEND {s00}ox 1", "SETRANGE {s00}ox 0 1", "HSET {s00}ax name x", "SET {s00}rx 1", "XADD {s00}e * e x",
			"XADD {s00}u * u x", "XTRIM {s00}e MAXLEN 0", "XDEL {s00}e 0-1", "XACK {s00}u status 0-1", "XREADGROUP GROUP g c STREAMS {s00}u >",
			"XGROUP DESTROY {s00}e status", "HSET {sg}meta partitions 9", "DEL {sg}meta", "SET {sg}fleets 1", "GET rate:{sg}logins:x", "DEL rate:{sg}logins:x",
			`FUNCTION LOAD "#!lua name=mine"`, "FUNCTION DELETE x", "SYNC",
			`EVAL "return redis.call('SET','{s00}ox','1')" 0`, `EVAL "return redis.call('SET',KEYS[1],'1')" 1 {s00}ox`,
			`EVAL "return redis.call('SET',KEYS[1],'1')" 1 {s00}e`, "FCALL none 1 {s00}ox", "SET {s00}o0123456789abcdefg}B 1",
			"SET {sg}lx 1", "DEL {sg}libraries", "COPY sessions:{sg}x {s00}z", "DEL rate:{sg}attempts:x",
		},
		allowed: []string{
			"PING", "INFO server", "GET {s00}ox", "SCAN 0", "SET sessions:{sg}x 1", "DEL sessions:{sg}x", "GET sessions:{sg}x", "ZADD {sg}libraries 1 x", "XGROUP CREATE {s00}v export 0 MKSTREAM", "XADD {s00}z * a b",
			`EVAL "return redis.call('SET',KEYS[1],'1')" 1 rate:sessions:{sg}attempts:x`, "FCALL_RO none 1 {s00}ox", "HSETNX {sg}meta format 1",
			"GET books:{sg}head", "SET books:{sg}head 1", "DEL books:{sg}head", `EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{sg}head`, "SET {s00}B 1", "SET {s3ffabc}B 1",
		},
	},
	"backup": {
		refused: []string{
			"SET {s00}ax 1", "DEL {s00}ox", "XADD {s00}e * e x", "XTRIM {s00}e MAXLEN 0", "XGROUP DESTROY {s00}u status", "LREM {s00}Rx 0 x",
			"XREADGROUP GROUP g c STREAMS {s00}e >", "HSET {sg}fleets x 1", "FCALL none 1 {s00}ox", `EVAL "return redis.call('SET','{s00}ax','1')" 0`, `FUNCTION LOAD "#!lua name=mine"`,
			"SET books:{sg}head 1", "DEL books:{sg}head", `EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{sg}head`,
			"SET sessions:{sg}x 1", "GET sessions:{sg}x", "COPY {sg}x sessions:{sg}x",
		},
		allowed: []string{"PING", "INFO server", "XGROUP CREATE {s00}e backup@1 0 MKSTREAM", "XGROUP DESTROY {s00}e backup@1", "HSET {sg}meta backup x", "SCAN 0", "REPLCONF capa eof",
			"GET {s00}ox", "SET {s00}ox 1", "LREM {s00}gx 0 x", "BGREWRITEAOF", "DEL sessions:{sg}x",
			`EVAL "return redis.call('SET',KEYS[1],'1')" 1 books:{sg}claim:migrate`},
	},
	"operator": {allowed: []string{"CONFIG GET maxmemory", "DBSIZE", "ACL LIST", "GET {p00}ox", "KEYS nothing*"}},
}

func TestUsers_AreRefusedWhatIsNotTheirs(t *testing.T) {
	t.Parallel()

	r := guarded(t)
	for user, table := range rights {
		if user != "operator" {
			table.refused = append(table.refused, slices.DeleteFunc(slices.Clone(dangerous), func(c string) bool { return slices.Contains(table.allowed, c) })...)
		}

		for _, command := range table.refused {
			if reply := onceAs(t, r.Addr, user, command); !noPermission(reply) {
				t.Errorf("%s is not refused %q: %s", user, command, reply)
			}
		}

		for _, command := range table.allowed {
			if reply := onceAs(t, r.Addr, user, command); noPermission(reply) { // what else is wrong with it does not matter
				t.Errorf("%s is refused %q: %s", user, command, reply)
			}
		}
	}

	if size, err := r.Command(t.Context(), "CONFIG", "GET", "appendonly"); err != nil || size != "appendonly\nyes" {
		t.Errorf("afterwards: %q, %v", size, err)
	}
}

// noPermission also knows how scripts report it, in Redis 7.0 and in Valkey, and that DEBUG
// is refused to everybody before rights are looked at.
func noPermission(reply string) bool {
	return strings.HasPrefix(reply, "-NOPERM") || strings.Contains(reply, "The user executing the script can't") ||
		strings.HasPrefix(reply, "-ERR ACL failure in script") || strings.Contains(reply, "DEBUG command not allowed")
}

// A session of the panel speaks for a person, and two of them close a month. Whoever has the gateway's or the
// worker's password finds none and makes none: not with commands, and not with functions that they load in
// the place of the library's, which run with the rights of who calls them.
func TestSessions_AreOutOfReachOfGatewayAndWorker(t *testing.T) {
	t.Parallel()

	r := guarded(t)
	open := func(user string) *ledger.Ledger {
		l, err := ledger.Open(t.Context(), ledger.Config{URL: "redis://" + user + ":for-" + user + "@" + r.Addr, Environment: "sandbox"})
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}

	open("gateway") // loads the library
	reporting := open("reporting")
	id := operations.NewSessionID()
	_, err := reporting.Sessions.Create(t.Context(), id, operations.Session{User: "ayse"})
	must(t, err)
	digest := sha256.Sum256([]byte(id))
	key := fmt.Sprintf(`"sessions:{sg}%s"`, escaped(digest[:]))

	for _, user := range []string{"gateway", "worker"} {
		load := onceAs(t, r.Addr, user, `FUNCTION LOAD REPLACE "#!lua name=mine\nredis.register_function('mine', `+
			`function(keys, args) return redis.call(unpack(args)) end)"`)
		if strings.HasPrefix(load, "-") {
			t.Fatalf("%s loads a function: %s", user, load)
		}

		for _, command := range []string{"GET " + key, "EXISTS " + key, "SET " + key + " x", "DEL " + key, "COPY {sg}fleets " + key, "SCAN 0", "KEYS *"} {
			called := "FCALL mine 0 " + command
			for _, attempt := range []string{command, called} {
				if reply := onceAs(t, r.Addr, user, attempt); !noPermission(reply) {
					t.Errorf("%s is not refused %s: %s", user, attempt, reply)
				}
			}
		}

		if _, err := open(user).Sessions.Create(t.Context(), operations.NewSessionID(), operations.Session{User: "ayse"}); err == nil {
			t.Errorf("%s has made a session", user)
		}
	}

	if s, err := reporting.Sessions.Get(t.Context(), id); err != nil || s.User != "ayse" {
		t.Errorf("the session afterwards: %+v, %v", s, err)
	}
}

// escaped is a key as Redis's inline form takes it between quotation marks.
func escaped(key []byte) string {
	var text strings.Builder
	for _, b := range key {
		fmt.Fprintf(&text, `\x%02x`, b)
	}
	return text.String()
}
