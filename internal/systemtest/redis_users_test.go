package systemtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// sandbox are users with passwords that nobody has to guess.
func sandbox() *stack.Users {
	return &stack.Users{Environment: "sandbox", Passwords: map[string]string{
		"gateway": "for-gateway", "worker": "for-worker", "reporting": "for-reporting",
		"backup": "for-backup", "operator": "for-operator",
	}}
}

func template(t *testing.T) []byte {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "configs", "redis-users.acl"))
	must(t, err)
	return text
}

func rendered(t *testing.T) []byte {
	t.Helper()
	text, err := stack.RenderUsers(template(t), *sandbox())
	must(t, err)
	return text
}

// The containers fill the template in with a shell script, `make run` with Go.
func TestRender_ScriptAndGoAgree(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	for _, environment := range []string{"sandbox", "production"} {
		u := sandbox()
		u.Environment = environment
		u.Passwords["worker"] = `of / & \1 $HOME "people"`
		script := exec.Command("sh", filepath.Join(root, "configs", "redis-users.sh"))
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
	root, err := stack.ModuleDir()
	must(t, err)
	u := sandbox()
	delete(u.Passwords, "worker")
	if _, err := stack.RenderUsers(template(t), *u); err == nil || !strings.Contains(err.Error(), "no password for worker") {
		t.Errorf("without a password: %v", err)
	}
	u.Environment = "staging"
	if _, err := stack.RenderUsers(template(t), *u); err == nil || !strings.Contains(err.Error(), "staging") {
		t.Errorf("another environment: %v", err)
	}
	script := exec.Command("sh", filepath.Join(root, "configs", "redis-users.sh"))
	script.Stdin, script.Env = bytes.NewReader(template(t)), []string{"PATH=" + os.Getenv("PATH"), "ENVIRONMENT=sandbox"}
	if out, err := script.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("REDIS_GATEWAY_PASSWORD")) {
		t.Errorf("the script without passwords: %v, %s", err, out)
	}
}

func guarded(t *testing.T) *stack.Redis {
	t.Helper()
	r, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: t.TempDir(), Users: sandbox()})
	must(t, err)
	t.Cleanup(r.Stop)
	return r
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

// As the README says: the new password is added, programs are restarted one after
// the other, the old one is taken away.
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
