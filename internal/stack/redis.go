package stack

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisStartTimeout bounds one start when the caller's context does not: an
// append-only file of several gigabytes takes a while to load.
const redisStartTimeout = 5 * time.Minute

// RedisProgram is the path of one of the programs that come with the server named in
// SERVER, redis (also when it is unset) or valkey: "server" or "cli". It is never the
// other's: what was measured or tested would be said of the wrong one.
func RedisProgram(name string) (string, error) {
	kind := cmp.Or(os.Getenv("SERVER"), "redis")
	if kind != "redis" && kind != "valkey" {
		return "", fmt.Errorf("SERVER=%q is neither redis nor valkey", kind)
	}

	path, err := exec.LookPath(kind + "-" + name)
	if err != nil {
		return "", fmt.Errorf("%w (`make deps SERVER=%s` installs it)", err, kind)
	}
	return path, nil
}

// RedisOptions say where a private redis-server keeps its data and listens.
type RedisOptions struct {
	Dir   string    // of the append-only file and redis.log; it is created when missing
	Addr  string    // host:port; empty: a free port on loopback
	Unix  bool      // also listens on a Unix socket, which URL then names
	Extra []string  // further arguments, such as "--maxmemory", "64mb"; they win over configs/redis.conf and DefaultMaxMemory
	Users *Users    // who may log in, and then nobody else may do anything; nil: everybody may do everything
	TLS   *RedisTLS // it speaks nothing but TLS at Addr; nil: plain text
	Env   []string  // further NAME=value settings of its environment
	// ClientTimeout is how long the operator's connection waits for each reply; 0: 5 s.
	ClientTimeout time.Duration

	inherit *os.File       // see Program.inherit
	onDeath func(*Program) // see Program.onDeath
}

// Redis is a private redis-server with the durability of configs/redis.conf
// (every acknowledged write survives a kill). It dies with this process.
type Redis struct {
	*Program
	URL  string // redis://host:port, rediss:// or unix:///path; with users, the operator's
	Addr string
	Dir  string

	users         *Users
	tls           *RedisTLS
	clientTimeout time.Duration // RedisOptions.ClientTimeout, or 5 s
}

// StartRedis starts a redis-server and returns when it answers, its data
// loaded. ctx bounds the start only; the server runs until Stop or Kill.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.Dir == "" {
		return nil, errors.New("start redis: no folder given")
	}

	dir, err := filepath.Abs(o.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}

	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}

	// Between choosing a free port and listening on it another program can take it; then
	// the next one is tried. A port that was asked for is not replaced.
	for attempt := 1; ; attempt++ {
		r, err := newRedis(dir, o)
		if err != nil {
			return nil, err
		}
		err = r.Start(ctx)
		if err == nil {
			return r, nil
		}

		r.Stop()
		if o.Addr != "" || attempt == 5 || !strings.Contains(err.Error(), "Address already in use") {
			return nil, err
		}
	}
}

// DefaultMaxMemory is the maxmemory of a private redis-server in bytes, half of the machine's memory:
// what is left is for the copies of a rewrite and for the programs. Where the machine does not say
// how much it has, it is 2 GiB.
func DefaultMaxMemory() string {
	const fallback = "2147483648"
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fallback
	}

	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "MemTotal: %d kB", &kilobytes); err == nil {
			return strconv.FormatInt(kilobytes*1024/2, 10)
		}
	}

	return fallback
}

func newRedis(dir string, o RedisOptions) (*Redis, error) {
	root, err := ModuleDir()
	if err != nil {
		return nil, err
	}
	path, err := RedisProgram("server")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}

	addr := o.Addr
	if addr == "" {
		addr = FreeAddr()
	}

	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}

	r := &Redis{Addr: addr, Dir: dir, URL: "redis://" + addr, users: o.Users, tls: o.TLS, clientTimeout: 5 * time.Second}
	if o.ClientTimeout > 0 {
		r.clientTimeout = o.ClientTimeout
	}

	args := []string{filepath.Join(root, "configs", "redis.conf"), "--dir", dir, "--bind", host, "--maxmemory", DefaultMaxMemory()}
	if o.TLS == nil {
		args = append(args, "--port", port)
	} else { // without these a Redis that has TLS built in listens in plain text only
		r.URL = "rediss://" + addr
		clients := "no"
		if o.TLS.AskClients {
			clients = "yes"
		}
		args = append(args, "--port", "0", "--tls-port", port, "--tls-auth-clients", clients, "--tls-protocols", "TLSv1.2 TLSv1.3",
			"--tls-cert-file", o.TLS.CertFile, "--tls-key-file", o.TLS.KeyFile, "--tls-ca-cert-file", o.TLS.CAFile)
	}

	if o.Unix {
		// A socket's path may have at most 107 bytes, so it is not in Dir.
		socket := filepath.Join(os.TempDir(), "redis-"+port+".sock")
		r.URL = "unix://" + socket
		args = append(args, "--unixsocket", socket, "--unixsocketperm", "700")
	}

	if o.Users != nil {
		file, err := writeUsers(root, dir, o.Users)
		if err != nil {
			return nil, err
		}
		args = append(args, "--aclfile", file)
		r.URL = r.URLFor(OperatorUser)
	}

	r.Program = &Program{
		Name: filepath.Base(path), Path: path, Args: append(args, o.Extra...), Env: o.Env, Log: filepath.Join(dir, "redis.log"),
		check: r.answers, timeout: redisStartTimeout, inherit: o.inherit, onDeath: o.onDeath,
		prepare: func() error { return repairTail(dir) },
	}

	return r, nil
}

// Command gives the server one command, as an operator does, and returns its reply as
// text, an array's as lines. An error reply is an error.
func (r *Redis) Command(ctx context.Context, args ...string) (string, error) {
	client, err := r.Client()
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }() // nothing is written by it

	command := make([]any, len(args))
	for i, arg := range args {
		command[i] = arg
	}

	reply, err := client.Do(ctx, command...).Result()

	return replyText(reply), err
}

// Client connects as the operator, who may do everything, over one connection, and waits
// for each reply as long as the options say. Arrays stay arrays (RESP 2), and nothing is sent twice.
func (r *Redis) Client() (*redis.Client, error) {
	o, err := redis.ParseURL(r.URL)
	if err != nil {
		return nil, err
	}

	o.Protocol, o.DisableIdentity, o.MaxRetries, o.PoolSize = 2, true, -1, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = r.clientTimeout, r.clientTimeout, r.clientTimeout
	o.ContextTimeoutEnabled = true
	if r.tls != nil {
		o.TLSConfig, err = r.tls.clientConfig(r.Addr)
		if err != nil {
			return nil, err
		}
	}

	return redis.NewClient(o), nil
}

func replyText(reply any) string {
	items, ok := reply.([]any)
	if !ok {
		return fmt.Sprint(reply)
	}

	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = replyText(item)
	}
	return strings.Join(lines, "\n")
}

// answers is nil when the server at Addr is this one and has loaded its data.
func (r *Redis) answers(ctx context.Context) error {
	info, err := r.Command(ctx, "INFO")
	if err != nil {
		return err
	}

	if !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", r.PID())) {
		return fmt.Errorf("another Redis answers at %s", r.Addr)
	}
	if !strings.Contains(info, "\nloading:0\r\n") { // and not of async_loading
		return errors.New("the data is being loaded")
	}

	return nil
}

// The users of Redis, as configs/redis-users.acl has them. Each program is one;
// the other two are people's.
const (
	GatewayUser   = "gateway"
	WorkerUser    = "worker"
	ReportingUser = "reporting"
	BackupUser    = "backup"   // `reporting backup` and `reporting restore`
	OperatorUser  = "operator" // may do everything
)

var redisUsers = []string{GatewayUser, WorkerUser, ReportingUser, BackupUser, OperatorUser}

// Users say who may log in to a Redis. The default user is then off.
type Users struct {
	// Passwords has one for every user of configs/redis-users.acl. Redis is given
	// their hashes only.
	Passwords map[string]string
	// Environment is "production" or "sandbox": whose keys the programs may touch.
	Environment string
}

// What Redis does not know in such a file.
var (
	noRule       = regexp.MustCompile(`(?m)^ *(#.*)?\n`)
	continuation = regexp.MustCompile(` *\n +`)
)

// RenderUsers makes the ACL file that Redis reads of configs/redis-users.acl. Redis
// knows neither comments nor rules over several lines there, so the first are
// dropped and the second joined.
func RenderUsers(template []byte, u Users) ([]byte, error) {
	letter, ok := map[string]string{"production": "p", "sandbox": "s"}[u.Environment]
	if !ok {
		return nil, fmt.Errorf("users of redis: environment %q is neither production nor sandbox", u.Environment)
	}

	text := continuation.ReplaceAllString(noRule.ReplaceAllString(string(template), ""), " ")
	var missing error
	for _, user := range redisUsers {
		if u.Passwords[user] == "" {
			missing = errors.Join(missing, fmt.Errorf("users of redis: no password for %s", user))
		}
		hash := fmt.Sprintf("#%x", sha256.Sum256([]byte(u.Passwords[user])))
		text = strings.ReplaceAll(text, "#"+strings.ToUpper(user)+"_SHA256", hash)
	}

	return []byte(strings.ReplaceAll(text, "{ENV", "{"+letter)), missing
}

func writeUsers(root, dir string, u *Users) (string, error) {
	template, err := os.ReadFile(filepath.Join(root, "configs", "redis-users.acl"))
	if err != nil {
		return "", fmt.Errorf("users of redis: %w", err)
	}

	path := filepath.Join(dir, "users.acl")
	text, err := RenderUsers(template, *u)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}

	return path, err
}

// URLFor is where a user reaches this Redis; without users, everybody's.
func (r *Redis) URLFor(user string) string {
	if r.users == nil {
		return r.URL
	}

	u, err := url.Parse(r.URL)
	if err != nil {
		return r.URL // composed by newRedis, so it can be read
	}

	u.User = url.UserPassword(user, r.users.Passwords[user])

	return u.String()
}

// RedisURL is where a user of this run's Redis reaches it: one of the programs'
// names, BackupUser or OperatorUser. A Redis that was given in Options is
// everybody's as it is.
func (s *Stack) RedisURL(user string) string {
	if s.Redis == nil {
		return s.options.RedisURL
	}
	return s.Redis.URLFor(user)
}

// redisEnv are a program's variables for a private Redis; one that is no user of it
// gets no address.
func (s *Stack) redisEnv(program string) []string {
	if s.Redis == nil {
		return nil // the environment of all of them names the Redis that was given
	}

	url, ca := "", ""
	if slices.Contains(redisUsers, program) {
		url = s.RedisURL(program)
		if s.Redis.tls != nil {
			ca = s.Redis.tls.CAFile
		}
	}

	return []string{"REDIS_URL=" + url, "REDIS_CA_FILE=" + ca}
}
