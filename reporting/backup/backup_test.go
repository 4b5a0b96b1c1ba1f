package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/operations"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/export"
)

func TestMain(m *testing.M) { testserver.Main(m) }

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quiet(string) {}

// newEnv has a Redis of its own, since all of it is copied.
func newEnv(t *testing.T) *archiveenv.System {
	t.Helper()
	passwords := map[string]string{}
	for _, user := range []string{stack.GatewayUser, stack.WorkerUser, stack.ReportingUser, stack.BackupUser, stack.OperatorUser} {
		passwords[user] = user
	}
	server := testserver.DedicatedRedis(t, stack.RedisOptions{Users: &stack.Users{Passwords: passwords, Environment: "sandbox"}})
	return archiveenv.NewOn(testenv.NewOn(t, server), testserver.SharedClickHouse(t))
}

func startExport(s *archiveenv.System, l *ledger.Ledger, a *archive.Archive) (stop func()) {
	e := export.New(l, a, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second}, "test",
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return s.Start(e.Run)
}

// What is exported while the backup is made, after ClickHouse was copied and before
// Redis is, is in the restored ClickHouse once the exporter has gone on there.
func TestMake_LosesNothingThatIsExportedMeanwhile(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	startExport(s, s.Ledger, s.Archive)
	s.Delivered(time.Now())
	s.AwaitExported()

	to, between := filepath.Join(t.TempDir(), "b"), false
	m, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: to, Progress: func(text string) {
		if between || !strings.HasPrefix(text, "ClickHouse webhook_outcomes") {
			return
		}

		between = true
		s.Delivered(time.Now())
		s.AwaitExported()
		for partition := range s.Ledger.Partitions() {
			_, err := s.Ledger.Streams.Trim(t.Context(), partition, 0)
			noError(t, err)
		}
	}})

	noError(t, err)
	if !between || m.Tables[0].Rows != 1 {
		t.Fatalf("%+v", m)
	}

	dir := t.TempDir()
	m, err = Open(to)
	noError(t, err)
	noError(t, m.PlaceRedis(to, 0, dir))
	redis := testserver.DedicatedRedis(t, stack.RedisOptions{Dir: dir})
	l, err := ledger.Open(t.Context(), ledger.Config{URL: redis.URL, Environment: m.Environment, Partitions: testenv.Partitions})
	noError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	other := &archiveenv.System{Env: s.Env, ClickHouse: s.ClickHouse, Database: s.ClickHouse.NewDatabase(t)}
	a := other.OpenArchive()
	_, err = a.Migrate(t.Context())
	noError(t, err)
	owner := archive.Owner{Environment: l.Environment(), Ledger: l.ID()}
	noError(t, a.Claim(t.Context(), owner)) // as `reporting migrate` does
	_, err = m.Finish(t.Context(), to, l, a, false, quiet)
	noError(t, err)
	if l.ID() != s.Ledger.ID() {
		t.Errorf("the restored ledger is %s, the one that was copied %s", l.ID(), s.Ledger.ID())
	}

	noError(t, a.CheckOwner(t.Context(), owner))
	other.Want("whose it is, and since when the copied one was", "countIf(ledger = '"+l.ID()+"'), count() FROM "+other.Database+".identity", "2\t2")
	other.Want("orders that the copy had", "count() FROM "+other.Database+".orders", "1")
	if _, err := m.Finish(t.Context(), to, l, a, false, quiet); !errors.Is(err, ErrHistory) {
		t.Errorf("ClickHouse has rows, and: %v", err)
	}

	again, err := m.Finish(t.Context(), to, l, a, true, quiet)
	if err != nil || !again.Before {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	if _, err := m.Finish(t.Context(), to, s.Ledger, a, true, quiet); !errors.Is(err, operations.ErrOtherCopy) {
		t.Errorf("the Redis that was copied: %v", err)
	}

	startExport(s, l, a)
	s.Await("the exporter has made up for it", func() bool {
		return other.Ask("count(), countIf(status = 'Delivered') FROM "+other.Database+".orders") == "2\t2\n"
	})
}

// Rows that ClickHouse has lost come back while Redis goes on, and rows that it has count once.
func TestLoadHistory_BringsBackWhatClickHouseHasLost(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	stop := startExport(s, s.Ledger, s.Archive)
	s.Delivered(time.Now())
	s.AwaitExported()
	s.ClickHouse.Exec(t, "INSERT INTO "+s.Database+".delivery_sets (name) VALUES ('lost'), ('kept')")
	to := filepath.Join(t.TempDir(), "b")
	m, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: to, Progress: quiet})
	noError(t, err)
	s.Delivered(time.Now())
	s.AwaitExported()
	stop()
	s.ClickHouse.Exec(t, "ALTER TABLE "+s.Database+".delivery_sets DELETE WHERE name = 'lost' SETTINGS mutations_sync = 1")
	s.ClickHouse.Exec(t, "ALTER TABLE "+s.Database+".orders DELETE WHERE true SETTINGS mutations_sync = 1")

	for range 2 {
		noError(t, m.LoadHistory(t.Context(), to, s.Ledger, s.Archive, quiet))
	}

	s.Want("the order of the backup", "count() FROM "+s.Database+".orders FINAL", "1")
	s.Want("rows that do not replace each other", "count(), uniqExact(name) FROM "+s.Database+".delivery_sets", "2\t2")
}

// Rows of another ledger would be mixed with this one's, and stay.
func TestLoadHistory_RefusesTheBackupOfAnotherLedger(t *testing.T) {
	t.Parallel()

	to, _ := made(t)
	m, err := Open(to)
	noError(t, err)
	s := newEnv(t)

	if err := m.LoadHistory(t.Context(), to, s.Ledger, s.Archive, quiet); !errors.Is(err, ErrOtherLedger) {
		t.Errorf("a backup of another ledger: %v", err)
	}

	m.Ledger = "" // as in a damaged backup.json
	if err := m.LoadHistory(t.Context(), to, s.Ledger, s.Archive, quiet); !errors.Is(err, ErrOtherLedger) {
		t.Errorf("a backup that does not say whose it is: %v", err)
	}

	m.Ledger, m.Tables = s.Ledger.ID(), nil
	if err := m.LoadHistory(t.Context(), to, s.Ledger, s.Archive, quiet); err == nil || !strings.Contains(err.Error(), "without ClickHouse") {
		t.Errorf("a backup that has nothing of ClickHouse: %v", err)
	}

	for what, other := range map[string]*Manifest{
		"other partitions":    {Environment: s.Ledger.Environment(), Partitions: s.Ledger.Partitions() + 1},
		"another environment": {Environment: "production", Partitions: s.Ledger.Partitions()},
	} {
		if _, err := other.Finish(t.Context(), to, s.Ledger, nil, false, quiet); err == nil || !strings.Contains(err.Error(), "the settings say") {
			t.Errorf("%s: %v", what, err)
		}
	}

	s.Want("nothing of it", "count() FROM "+s.Database+".orders", "0")
}

// made is a small backup with included files.
func made(t *testing.T) (to string, s *archiveenv.System) {
	t.Helper()
	s = newEnv(t)
	s.Delivered(time.Now())
	keys := filepath.Join(t.TempDir(), "keys")
	noError(t, os.MkdirAll(filepath.Join(keys, "deeper"), 0o755))
	for _, name := range []string{"token-keys", "deeper/webhook-keys"} {
		noError(t, os.WriteFile(filepath.Join(keys, name), []byte("geheim "+name), 0o644))
	}

	to = filepath.Join(t.TempDir(), "backups", "one")
	_, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: to, Include: []string{keys + "/"}, Progress: quiet})
	noError(t, err)

	return to, s
}

func TestOpen_SeesEveryDamage(t *testing.T) {
	t.Parallel()

	to, _ := made(t)
	m, err := Open(to)
	noError(t, err)
	for _, name := range append(m.files(), sumsFile) {
		path := filepath.Join(to, name)
		whole, err := os.ReadFile(path)
		noError(t, err)
		info, err := os.Stat(path)
		noError(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s may be read by others: %s", name, info.Mode())
		}

		damages := map[string][]byte{"cut off": whole[:len(whole)-1], "empty": {}}
		changed := append([]byte(nil), whole...)
		changed[len(changed)/2] ^= 4
		damages["changed"] = changed
		for what, content := range damages {
			noError(t, os.WriteFile(path, content, 0o600))
			if _, err := Open(to); err == nil && (name != sumsFile || what != "cut off") { // its last byte is a newline
				t.Errorf("%s is %s, and nobody saw it", name, what)
			}
		}

		noError(t, os.Remove(path))
		if _, err := Open(to); !errors.Is(err, ErrDamaged) {
			t.Errorf("without %s: %v", name, err)
		}

		noError(t, os.WriteFile(path, whole, 0o600))
	}

	_, err = Open(to)
	noError(t, err)
}

// Whoever can write to a backup's folder chooses the names in it, and the sums: a restore writes and reads below its
// folders only.
func TestOpen_RefusesNamesThatLeadElsewhere(t *testing.T) {
	t.Parallel()

	for _, name := range []string{"../keys", "included/../../keys", "/keys"} {
		dir := filepath.Join(t.TempDir(), "b")
		text, err := json.Marshal(Manifest{Format: 1, Included: []string{name}})
		noError(t, err)
		noError(t, writeFile(filepath.Join(dir, "backup.json"), text))
		noError(t, writeFile(filepath.Join(dir, "..", "keys"), []byte("elsewhere")))
		sums := fmt.Sprintf("%x  backup.json\n%x  %s\n", sha256.Sum256(text), sha256.Sum256([]byte("elsewhere")), name)
		noError(t, writeFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums)))

		if _, err := Open(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "backup.json names") {
			t.Errorf("%s: %v", name, err)
		}
	}

	dir := t.TempDir()
	noError(t, writeFile(filepath.Join(dir, "b", "keys"), []byte("not below included")))
	to := filepath.Join(dir, "out", "here")
	m := &Manifest{Included: []string{"keys"}}
	if err := m.PlaceIncluded(filepath.Join(dir, "b"), to); !errors.Is(err, ErrDamaged) {
		t.Errorf("a name that is not below included: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "keys")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is beside the folder: %v", err)
	}
}

func TestPlace_OverwritesNothing(t *testing.T) {
	t.Parallel()

	to, _ := made(t)
	m, err := Open(to)
	noError(t, err)
	dir := t.TempDir()
	noError(t, m.PlaceRedis(to, 0, dir))
	if err := m.PlaceRedis(to, 0, dir); err == nil {
		t.Error("it was put over a Redis that has data")
	}

	for _, node := range []int{-1, 1} {
		if err := m.PlaceRedis(to, node, t.TempDir()); err == nil {
			t.Errorf("there is no master %d", node)
		}
	}

	snapshots := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(snapshots, "dump.rdb"), nil, 0o600))
	if err := m.PlaceRedis(to, 0, snapshots); err == nil {
		t.Error("it was put beside a dump.rdb")
	}

	for range 2 { // the same again is nothing new
		noError(t, m.PlaceIncluded(to, dir))
	}

	key := filepath.Join(dir, "keys", "deeper", "webhook-keys")
	if text, err := os.ReadFile(key); err != nil || string(text) != "geheim deeper/webhook-keys" {
		t.Errorf("%q, %v", text, err)
	}

	noError(t, os.WriteFile(key, []byte("another"), 0o600))
	if err := m.PlaceIncluded(to, dir); err == nil {
		t.Error("another key was overwritten")
	}
}

// What was not finished leaves nothing that looks like a backup, and no hold.
func TestMake_LeavesNothingHalf(t *testing.T) {
	t.Parallel()

	to, s := made(t)
	if _, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: to, Progress: quiet}); err == nil {
		t.Error("it was written over another")
	}

	parent := t.TempDir()
	half := filepath.Join(parent, "half")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Make(ctx, s.OpenAs(stack.BackupUser), s.Archive, Options{To: half, Progress: func(text string) {
		if strings.HasPrefix(text, "ClickHouse orders") {
			cancel()
		}
	}})
	if err == nil {
		t.Error("it was interrupted, and says nothing")
	}
	if _, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: half, Include: []string{filepath.Join(parent, "missing")}, Progress: quiet}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there was included: %v", err)
	}

	left, err := os.ReadDir(parent)
	if err != nil || len(left) > 0 {
		t.Errorf("%v are left: %v", left, err)
	}

	groups := s.Do("EVAL", testenv.PrefixesLua+`
local held = 0
for _, prefix in ipairs(prefixes()) do
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', prefix .. 'e')) do
    if string.find(group[2], 'backup@', 1, true) then held = held + 1 end
  end
end
return held`, 0)
	if groups != int64(0) {
		t.Errorf("%v holds are left", groups)
	}

	noError(t, os.Mkdir(half+".partial", 0o700))
	if _, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: half, Progress: quiet}); err == nil {
		t.Error("two wrote the same backup")
	}
}

// What arrived otherwise than Redis has sent it is no part of a backup.
func TestMake_LooksAtTheSumOfASnapshot(t *testing.T) {
	t.Parallel()

	m := &Manifest{}
	corrupted := "REDIS0011 some keys \xff" + strings.Repeat("\x01", 8)

	err := m.copyRedis(t.TempDir(), operations.Node{}, strings.NewReader(corrupted), func(string) {})

	if !errors.Is(err, operations.ErrSnapshot) || len(m.Redis) != 0 {
		t.Errorf("%v, listed are %+v", err, m.Redis)
	}
}

// What is encrypted shows nothing but sums and counts; only its recipient puts it back, and
// whoever fails leaves nothing where it would go.
func TestMake_EncryptsForItsRecipients(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.Delivered(time.Now())
	dir := t.TempDir()
	identity := func(name string) (file string, recipient age.Recipient) {
		key, err := age.GenerateX25519Identity()
		noError(t, err)
		file = filepath.Join(dir, name)
		noError(t, os.WriteFile(file, []byte("# created\n"+key.String()+"\n"), 0o600))
		return file, key.Recipient()
	}

	mine, recipient := identity("mine")
	others, _ := identity("others")
	key := filepath.Join(dir, "webhook-keys")
	noError(t, os.WriteFile(key, []byte("geheim"), 0o600))
	to := filepath.Join(dir, "b")
	made, err := Make(t.Context(), s.OpenAs(stack.BackupUser), s.Archive, Options{To: to, Include: []string{key}, Recipients: []age.Recipient{recipient}, Progress: quiet})
	noError(t, err)
	for _, name := range made.files() {
		text, err := os.ReadFile(filepath.Join(to, name))
		noError(t, err)
		if name != manifestFile && (!strings.HasSuffix(name, ".age") || !bytes.HasPrefix(text, []byte("age-encryption.org/v1\n"))) {
			t.Errorf("%s is not encrypted", name)
		}
	}

	for name, identities := range map[string][]string{"none": nil, "another's": {others}} {
		m, err := Open(to, identities...)
		noError(t, err) // its sums can be checked by everybody
		out := t.TempDir()
		if err := m.PlaceRedis(to, 0, out); !errors.Is(err, ErrIdentity) {
			t.Errorf("%s, Redis: %v", name, err)
		}
		if err := m.PlaceIncluded(to, out); !errors.Is(err, ErrIdentity) {
			t.Errorf("%s, keys: %v", name, err)
		}

		for _, left := range []string{"webhook-keys", appendFolder} {
			if _, err := os.Stat(filepath.Join(out, left)); err == nil {
				t.Errorf("%s: %s is left", name, left)
			}
		}
	}

	m, err := Open(to, others, mine)
	noError(t, err)
	out := t.TempDir()
	noError(t, m.PlaceRedis(to, 0, out))
	for range 2 {
		noError(t, m.PlaceIncluded(to, out))
	}

	for name, want := range map[string]string{"webhook-keys": "geheim", appendFolder + "/" + appendBase: "REDIS0"} {
		if text, err := os.ReadFile(filepath.Join(out, name)); err != nil || !bytes.HasPrefix(text, []byte(want)) {
			t.Errorf("%s begins with %.10q, %v", name, text, err)
		}
	}

	other := &archiveenv.System{Env: s.Env, ClickHouse: s.ClickHouse, Database: s.ClickHouse.NewDatabase(t)}
	a := other.OpenArchive()
	_, err = a.Migrate(t.Context())
	noError(t, err)
	noError(t, m.load(t.Context(), to, a, false, quiet))

	for _, wrong := range []string{key, filepath.Join(dir, "missing")} {
		if _, err := Open(to, wrong); err == nil || !strings.Contains(err.Error(), wrong) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("identity %s: %v", wrong, err)
		}
	}
}
