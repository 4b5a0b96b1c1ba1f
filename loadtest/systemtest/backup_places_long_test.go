//go:build long

package systemtest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// commandWith is Command with further settings in its environment.
func (e *stackEnv) commandWith(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), args...)
	cmd.Dir = filepath.Dir(moduleFile(t, "go.mod"))
	cmd.Env = append(append(os.Environ(), "REDIS_URL="+e.RedisURL(stack.BackupUser), "CLICKHOUSE_URL="+e.ClickHouseURL(), "ENVIRONMENT=sandbox"), env...)
	out, err := cmd.CombinedOutput()

	return string(out), err
}

// Backups go to a real S3 server, which keeps the newest; one that the server cuts off is no
// backup, and what is downloaded by other means is put back.
func TestBackup_ToS3KeepsTheNewestAndShowsNoHalfOne(t *testing.T) {
	t.Parallel()

	data := t.TempDir()
	s := startStack(t, stack.Options{DataDir: data, Reporting: true})
	files, staging := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(files, "bucket"), 0o700))
	addr := stack.FreeAddr()
	start(t, exec.CommandContext(t.Context(), installed(t, "github.com/versity/versitygw", "cmd/versitygw", "v1.8.0"),
		"--access", "me", "--secret", "geheim-geheim", "--port", addr, "posix", files))
	origin, err := url.Parse("http://" + addr)
	must(t, err)
	var puts, allowed atomic.Int64
	allowed.Store(1000)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && puts.Add(1) > allowed.Load() {
			w.WriteHeader(http.StatusForbidden)
			return
		}

		// The host is signed, so it stays.
		(&httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(origin); p.Out.Host = p.In.Host }}).ServeHTTP(w, r)
	}))

	t.Cleanup(front.Close)
	await(t, "the S3 server answers", func() bool { resp, err := http.Get(origin.String()); return err == nil && resp.Body.Close() == nil })

	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("geheim-geheim\n"), 0o600))
	env := []string{"AWS_ENDPOINT_URL=" + front.URL, "AWS_ACCESS_KEY_ID=me", "AWS_SECRET_ACCESS_KEY=", "AWS_SECRET_ACCESS_KEY_FILE=" + secret, "AWS_REGION=", "TMPDIR=" + staging}
	place := filepath.Join(files, "bucket", "a", "b")
	foreign := filepath.Join(place, "notes", "backup.json")
	must(t, os.MkdirAll(filepath.Dir(foreign), 0o700))
	must(t, os.WriteFile(foreign, nil, 0o600))
	whole := func() (names []string) {
		found, err := filepath.Glob(filepath.Join(place, "2*", "backup.json"))
		must(t, err)
		for _, path := range found {
			names = append(names, filepath.Base(filepath.Dir(path)))
		}
		return names
	}

	backup := func(keep ...string) (string, error) {
		// Names are of seconds.
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		return s.commandWith(t, env, append([]string{"backup", "--to", "s3://bucket/a/b", "--include", filepath.Join(data, "keys")}, keep...)...)
	}

	for i := range 20 { // old ones, of which one by hand removes none
		old := filepath.Join(place, fmt.Sprintf("20250101T0000%02dZ", i))
		must(t, os.MkdirAll(old, 0o700))
		must(t, os.WriteFile(filepath.Join(old, "backup.json"), nil, 0o600))
	}

	if out, err := backup(); err != nil || len(whole()) != 21 {
		t.Errorf("%v, and there are %v\n%s", err, whole(), out)
	}

	var made []string
	for range 3 {
		if out, err := backup("--keep", "2"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		made = append(made, whole()[len(whole())-1])
	}

	if left := whole(); !slices.Equal(left, made[1:]) {
		t.Errorf("left are %v of %v", left, made)
	}
	if left, _ := filepath.Glob(filepath.Join(place, made[0], "*")); len(left) > 0 {
		t.Errorf("of the removed one is left %v", left)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}

	list := filepath.Join(t.TempDir(), "erasures")
	must(t, os.WriteFile(list, nil, 0o600))
	if out, err := s.commandWith(t, env, "restore", "--check", "--from", filepath.Join(place, made[2]), "--erasures", list); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := s.commandWith(t, env, "backup", "--health", "--to", "s3://bucket/a/b"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}

	allowed.Store(puts.Load() + 3)
	if out, err := backup(); err == nil || !strings.Contains(out, "uploading: ") {
		t.Errorf("it was cut off: %v\n%s", err, out)
	}
	if left := whole(); !slices.Equal(left, made[1:]) {
		t.Errorf("after one that was cut off there are %v, not %v", left, made[1:])
	}
	if half, _ := filepath.Glob(filepath.Join(place, "2*")); len(half) != 3 {
		t.Errorf("nothing was uploaded before it was cut off: %v", half)
	}
	if left, _ := filepath.Glob(filepath.Join(staging, "*", "*")); len(left) > 0 {
		t.Errorf("left on this side: %v", left)
	}
}

// A schedule makes the first one at once, and the drill tries the newest with the owner's key,
// and leaves nothing; what is damaged, or of nobody, does not pass.
func TestDrill_TriesTheNewestOfASchedule(t *testing.T) {
	t.Parallel()

	data, place := t.TempDir(), filepath.Join(t.TempDir(), "place")
	s := startStack(t, stack.Options{DataDir: data, Reporting: true, CourierStep: 50 * time.Millisecond})
	v := s.Account(t, stack.Unlimited)
	v.AwaitStore(t, s)
	c := startCreating(t, v)
	await(t, "orders are made", func() bool { return len(c.all()) > 20 })
	key, err := age.GenerateX25519Identity()
	must(t, err)
	identity := filepath.Join(t.TempDir(), "identity")
	must(t, os.WriteFile(identity, []byte(key.String()+"\n"), 0o600))
	schedule := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), "backup", "--config", moduleFile(t, "configs/reporting.yaml"),
		"--to", place, "--every", "24h", "--age-recipient", key.Recipient().String(), "--include", filepath.Join(data, "keys"))
	schedule.Env = append(os.Environ(), "REDIS_URL="+s.RedisURL(stack.BackupUser), "CLICKHOUSE_URL="+s.ClickHouseURL(), "ENVIRONMENT=sandbox")
	start(t, schedule)
	var made []string
	await(t, "the first is made at once", func() bool {
		made, err = filepath.Glob(filepath.Join(place, "*Z", "backup.json"))
		must(t, err)
		return len(made) == 1
	})

	c.stop()
	drill := func(o stack.Options, from string) (string, error) {
		var said strings.Builder
		o.BinDir, o.Out = testserver.Programs(t), &said
		err := stack.Drill(t.Context(), o, from)
		dir := ""
		if _, rest, found := strings.Cut(said.String(), " in /"); found {
			dir = "/" + strings.Fields(rest)[0]
		}

		if _, there := os.Stat(dir); dir != "" && there == nil {
			t.Errorf("%s is left", dir)
		}

		return said.String(), err
	}

	out, err := drill(stack.Options{AgeIdentity: identity}, place)
	if err != nil || !regexp.MustCompile(`: [1-9][0-9]+ orders compared, no difference`).MatchString(out) || !strings.Contains(out, filepath.Dir(made[0])+" was restored and reconciled") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := drill(stack.Options{}, place); err == nil || !strings.Contains(out, "is encrypted") {
		t.Errorf("without the key: %v\n%s", err, out)
	}
	if out, err := drill(stack.Options{}, t.TempDir()); err == nil || !strings.Contains(err.Error(), "backup.json") {
		t.Errorf("of nothing: %v\n%s", err, out)
	}

	must(t, os.WriteFile(filepath.Join(filepath.Dir(made[0]), "orders.native.zst.age"), nil, 0o600))
	if out, err := drill(stack.Options{AgeIdentity: identity}, place); err == nil || !strings.Contains(out, "orders.native.zst.age has changed") {
		t.Errorf("damaged: %v\n%s", err, out)
	}
}

// Production's keys have other names in Redis, and its partitions another number.
func TestDrill_OfProduction(t *testing.T) {
	t.Parallel()

	users := &stack.Users{Passwords: map[string]string{}, Environment: "production"}
	for _, user := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser, stack.BackupUser, stack.OperatorUser} {
		users.Passwords[user] = user
	}

	redis := testserver.DedicatedRedis(t, stack.RedisOptions{Users: users})
	history := testserver.SharedClickHouse(t)
	to := filepath.Join(t.TempDir(), "b")
	cmd := exec.CommandContext(t.Context(), filepath.Join(testserver.Programs(t), "reporting"), "backup", "--config", moduleFile(t, "configs/reporting.yaml"), "--to", to)
	cmd.Env = append(os.Environ(), fmt.Sprintf("REDIS_URL=redis://%s:%[1]s@%s", stack.BackupUser, redis.Addr), "ENVIRONMENT=production", "PARTITIONS=3",
		"CLICKHOUSE_URL="+history.URL, "CLICKHOUSE_DATABASE="+history.NewDatabase(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var said strings.Builder
	if err := stack.Drill(t.Context(), stack.Options{BinDir: testserver.Programs(t), Out: &said}, to); err != nil {
		t.Errorf("%v\n%s", err, said.String())
	}
}
