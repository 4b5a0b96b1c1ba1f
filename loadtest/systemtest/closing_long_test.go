//go:build long

package systemtest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/closing"
)

// A month that two people close with the command arrives in S3 although the server was not there
// at first, finance's system is told, and the signature, the seal and every digest verify.
func TestMonth_ArrivesWithAVerifiedWebhook(t *testing.T) {
	gateway := installVersityGateway(t)
	books, addr := t.TempDir(), stack.FreeAddr()
	must(t, os.Mkdir(filepath.Join(books, "books"), 0o700))
	settings, err := os.ReadFile("../../configs/reporting.yaml")
	must(t, err)
	configs := t.TempDir()
	must(t, os.CopyFS(configs, os.DirFS("../../configs")))
	must(t, os.WriteFile(filepath.Join(configs, "reporting.yaml"), []byte(strings.Replace(string(settings), "targets: []",
		"targets: [{name: erp, url: 's3://books/finance?endpoint=http://"+addr+"'}]", 1)), 0o600))
	e := startStack(t, stack.Options{Reporting: true, ConfigDir: configs, Env: []string{"DELIVER_ERP_KEY_ID=me", "DELIVER_ERP_SECRET=geheim-geheim"}})

	var mu sync.Mutex
	var told []receiver.Event
	var made struct{ Secret string }
	hooks := http.NewServeMux()
	url, stop, err := receiver.Serve(hooks)
	must(t, err)
	t.Cleanup(stop)
	must(t, e.Admin.Call(t.Context(), http.MethodPut, "/finance/webhook", map[string]string{"url": url}, &made))
	r, err := receiver.New(receiver.Options{Secrets: []string{made.Secret}, Seen: func(e receiver.Event, duplicate bool) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e)
	}, Refused: func(status int, reason string) { t.Errorf("the receiver answered %d: %s", status, reason) }})

	must(t, err)
	hooks.Handle("/", r)

	month := closing.MonthOf(time.Now().Add(-closing.Grace)).AddDate(0, 0, -1)
	text := closing.MonthOf(month).String()
	a, err := archive.Open(archive.Settings{URL: e.ClickHouseURL()})
	must(t, err)
	t.Cleanup(func() { a.Close() })
	orders := wideOrders(delivery.NewAccountID(), delivery.NewFleetID(), month)
	for i := range orders {
		o := &orders[i]
		o.Status, o.Failure = delivery.Delivered, ""
		o.CreatedAt = month.Add(-time.Duration(i) * time.Hour)
		o.EndedAt, o.DeliveredAt = o.CreatedAt.Add(time.Minute), o.CreatedAt.Add(time.Minute)
	}

	must(t, a.InsertAgain(t.Context(), &archive.Batch{Orders: orders}))
	command := func(args ...string) string {
		t.Helper()
		out, err := e.Month(t.Context(), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}

	command("hold", text, "--user", e.Demo.Panel.User, "--note", "a test")
	said := command("close", text, "--user", stack.SecondUser)
	_, seal, _ := strings.Cut(said, "\nseal ")
	seal = strings.TrimSpace(seal)

	log, err := os.Create(filepath.Join(t.TempDir(), "versitygw.log"))
	must(t, err)
	server := exec.Command(gateway, "--access", "me", "--secret", "geheim-geheim", "--port", addr, "posix", books)
	server.Stdout, server.Stderr = log, log
	testserver.Await(t, "a delivery has failed", func() bool {
		text, _ := os.ReadFile(e.Reporting.Log)
		return strings.Contains(string(text), "a delivery failed and will be tried again")
	})

	must(t, server.Start())
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	testserver.Await(t, "finance is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) > 0
	})

	var report struct {
		ID, Kind, Month string
		Seal            struct{ SHA256 string }
		Files           []struct{ Target, Name, SHA256 string }
	}

	must(t, json.Unmarshal(told[0].Data, &report))
	if told[0].Event != "report.available" || report.Kind != "closing" || report.Month != text || report.Seal.SHA256 != seal || len(report.Files) != 6 {
		t.Errorf("%s %+v, the seal is %s", told[0].Event, report, seal)
	}

	for _, f := range report.Files {
		content, err := os.ReadFile(filepath.Join(books, "books", "finance", f.Name))
		must(t, err)
		sum := sha256.Sum256(content)
		if got := hex.EncodeToString(sum[:]); got != f.SHA256 || strings.HasSuffix(f.Name, "manifest.json") && got != seal {
			t.Errorf("%s has the digest %s, announced is %s", f.Name, got, f.SHA256)
		}
	}

	if said := command("verify"); !strings.Contains(said, fmt.Sprintf("the books are what they were: 1 closings, 60 rows, 2 entries; the last seal is %s", seal)) {
		t.Error(said)
	}
}

// installVersityGateway is an S3 server that checks signatures; reporting/deliver's tests have the same.
func installVersityGateway(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	must(t, err)
	dir := filepath.Join(cache, "vendorapi", "versitygw-v1.8.0")
	install := exec.Command("go", "install", "github.com/versity/versitygw/cmd/versitygw@v1.8.0")
	install.Dir, install.Env = t.TempDir(), append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	return filepath.Join(dir, "versitygw")
}
