package stack

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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

// placeholder is what stands for a password's hash in the template.
var placeholder = regexp.MustCompile(`#([A-Z]+)_SHA256\b`)

// RenderUsers makes the ACL file that Redis reads of configs/redis-users.acl. Redis
// knows neither comments nor rules over several lines there, so the first are
// dropped and the second joined.
func RenderUsers(template []byte, u Users) ([]byte, error) {
	letter, ok := map[string]string{"production": "p", "sandbox": "s"}[u.Environment]
	if !ok {
		return nil, fmt.Errorf("users of redis: environment %q is neither production nor sandbox", u.Environment)
	}
	var out bytes.Buffer
	for line := range strings.Lines(string(template)) {
		line = strings.TrimRight(line, " \n")
		rule := strings.TrimLeft(line, " ")
		switch {
		case rule == "" || rule[0] == '#':
			continue
		case rule == line: // a user begins
			if out.Len() > 0 {
				out.WriteByte('\n')
			}
		default:
			out.WriteByte(' ')
		}
		out.WriteString(rule)
	}
	out.WriteByte('\n')
	var missing error
	text := placeholder.ReplaceAllStringFunc(out.String(), func(mark string) string {
		user := strings.ToLower(placeholder.FindStringSubmatch(mark)[1])
		if u.Passwords[user] == "" {
			missing = errors.Join(missing, fmt.Errorf("users of redis: no password for %s", user))
		}
		return fmt.Sprintf("#%x", sha256.Sum256([]byte(u.Passwords[user])))
	})
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
