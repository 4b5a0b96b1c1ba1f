//go:build long

package systemtest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/stack"
)

// A recipient's order is delivered, another one is on its way, and a backup is made. Then both are
// erased by telephone number. Nothing of the recipient is left in any file of the system, nor after a
// restore of the backup, which had them.
func TestErase_LeavesNothingAndHoldsAfterARestore(t *testing.T) {
	t.Parallel()

	data, backups := t.TempDir(), filepath.Join(t.TempDir(), "backups")
	to, list := filepath.Join(backups, "first"), filepath.Join(backups, "erasures")
	o := stack.Options{DataDir: data, Courier: "manual", Reporting: true}
	s := startStack(t, o)
	v := s.Account(t, stack.Unlimited)
	must(t, v.Call(t.Context(), http.MethodPut, "/stores/"+v.Store, stack.StoreBody(s.Demo.Fleet.FleetID), nil))
	must(t, s.Admin.Call(t.Context(), http.MethodPost, "/accounts/"+v.AccountID+"/stores/"+v.Store+"/confirm", nil, nil))
	recipient := func(body map[string]any) {
		body["recipient"] = map[string]any{"name": "Perihan Mağden Sözen", "phone": "05398765432"}
		body["dropoff"] = map[string]any{"text": "Bülbülderesi Caddesi No: 77", "latitude": 40.98765, "longitude": 29.03, "note": "zil bozuk, arka kapı"}
		body["packageNote"] = "Kapıcıya bırakın"
	}

	done, open := v.Create(t, recipient), v.Create(t, recipient)
	for _, id := range []string{done, open} {
		s.Accept(t, id)
		s.AwaitStatus(t, id, "Assigned")
	}

	s.Report(t, done, "Delivered", "")
	backUp(t, s, data, to)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere", "second")
	backUp(t, s, data, elsewhere)
	wantPersonal(t, filepath.Join(data, "redis"), true)

	erase := func(status string, words ...string) {
		t.Helper()
		out, err := s.Command(t, stack.BackupUser, "erase", "--phone", "05398765432", "--record", list)
		if (err == nil) != (status == "") || err != nil && err.Error() != "exit status "+status {
			t.Fatalf("%v, want status %q\n%s", err, status, out)
		}

		for _, text := range words {
			if !strings.Contains(out, text) {
				t.Errorf("it does not say %q:\n%s", text, out)
			}
		}
	}

	erase("3", "order "+done+": erased", "order "+open, " is Assigned")
	s.Report(t, open, "Delivered", "")
	erase("", "order "+open+": erased")
	erase("2", "nothing found")
	for _, id := range []string{done, open} {
		var job map[string]any
		must(t, s.Fleet.Call(t.Context(), http.MethodGet, "/jobs/"+id, nil, &job))
		if job["recipient"] != nil || job["status"] != "Delivered" {
			t.Errorf("its fleet sees %v", job)
		}
	}

	reconciled(t, s)
	await(t, "Redis has removed its files from before", func() bool { return personalIn(t, filepath.Join(data, "redis")) == "" })
	wantNothingExported(t, s)
	s.Stop()
	wantPersonal(t, data, false)

	must(t, os.Rename(list, list+".away"))
	fresh := stack.Options{DataDir: t.TempDir(), Courier: "manual", Reporting: true}
	for _, from := range []string{to, elsewhere} {
		if err := stack.Restore(t.Context(), fresh, from, false); err == nil {
			t.Fatal("it is restored without the list of erasures")
		}
	}

	must(t, os.Rename(list+".away", list))
	fresh.Out, fresh.Erasures = echo{t}, list
	must(t, stack.Restore(t.Context(), fresh, elsewhere, false))
	s2 := startStack(t, fresh)
	reconciled(t, s2)
	for _, id := range []string{done, open} {
		await(t, "the trail says that it was erased again", func() bool {
			out, err := s2.Command(t, stack.ReportingUser, "audit", "--about", id, "--action", "recipient erased")
			must(t, err)
			return strings.Count(out, "reporting restore") == 1 && !strings.Contains(out, "reporting erase") // the backup is older
		})
	}

	wantPersonal(t, fresh.DataDir, false)
	wantNothingExported(t, s2)
	if status := s2.StatusOf(t, open); status != "Assigned" { // as it was when the backup was made
		t.Errorf("the order is %s", status)
	}

	s2.Report(t, open, "Delivered", "")
	reconciled(t, s2)
	wantPersonal(t, fresh.DataDir, false)
}

// personalIn is what a folder's files hold of the recipient; empty: nothing.
func personalIn(t *testing.T, dir string) (found string) {
	t.Helper()
	latitude, _ := hex.DecodeString("40447e6b50b0f27c") // 40.98765, as records have it
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // removed meanwhile, or a socket
		}

		content, err := os.ReadFile(path)
		if err != nil {
			return nil
		}

		for _, text := range []string{"Perihan", "5398765432", "Bülbülderesi", "zil bozuk", "Kapıcıya", "40.98765", string(latitude)} {
			if bytes.Contains(content, []byte(text)) {
				found += fmt.Sprintf("%s holds %q\n", path, text)
			}
		}

		return nil
	})

	must(t, err)

	return found
}

func wantPersonal(t *testing.T, dir string, there bool) {
	t.Helper()
	if found := personalIn(t, dir); (found != "") != there {
		t.Errorf("of the recipient: %q", found)
	}
}

// wantNothingExported looks into ClickHouse's tables, whose files are compressed.
func wantNothingExported(t *testing.T, s *stackEnv) {
	t.Helper()
	dir := t.TempDir()
	tables := strings.Fields(s.query(t, "SELECT name FROM system.tables WHERE database = 'delivery' AND engine LIKE '%MergeTree'"))
	if len(tables) < 4 {
		t.Fatalf("ClickHouse has the tables %q", tables)
	}

	for _, table := range tables {
		must(t, os.WriteFile(filepath.Join(dir, table), []byte(s.query(t, "SELECT * FROM delivery."+table)), 0o600))
	}

	wantPersonal(t, dir, false)
}

func reconciled(t *testing.T, s *stackEnv) {
	t.Helper()
	out, err := s.Command(t, stack.ReportingUser, "reconcile", "--day", time.Now().In(time.FixedZone("", 3*60*60)).Format(time.DateOnly))
	if err != nil || !strings.Contains(out, "2 orders compared, no difference") {
		t.Errorf("%v\n%s", err, out)
	}
}
