//go:build long

package systemtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// known are the secrets of a run.
type known struct{ secrets []secret }

// secret is one in all the forms in which it could be found.
type secret struct {
	name, text string
	forms      [][]byte
}

// leastSecret keeps a search from finding what is no secret.
const leastSecret = 16

func (k *known) add(name, text string) {
	k.secrets = append(k.secrets, secret{name, text, formsOf([]byte(text))})
}

// addKeys remembers the programs' keys and passwords, as they stand in their files
// and as what they encode.
func (k *known) addKeys(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	must(t, err)
	for _, file := range files {
		name := file.Name()
		if name == "panel-users" || name == "report-tokens" {
			continue // they hold what can be made of a secret, not the secret
		}

		content, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		text := strings.TrimSpace(string(content))
		if _, encoded, isRing := strings.Cut(text, ":"); isRing {
			raw, err := base64.StdEncoding.DecodeString(encoded)
			must(t, err)
			k.secrets = append(k.secrets, secret{name, encoded, slices.Concat(formsOf([]byte(encoded)), formsOf(raw))})
			continue
		}

		k.add(name, text)
	}
}

// formsOf is a secret as it is, as a URL, a JSON text and a shell would have it,
// in hexadecimal, and in base64 wherever it may begin.
func formsOf(plain []byte) [][]byte {
	forms := [][]byte{
		plain, []byte(url.QueryEscape(string(plain))),
		[]byte(unquoted(strconv.Quote(string(plain)))), []byte(unquoted(strconv.QuoteToASCII(string(plain)))),
		[]byte(hex.EncodeToString(plain)), []byte(strings.ToUpper(hex.EncodeToString(plain))),
	}

	for before := range 3 {
		// What stands before it decides how it is cut into groups of six bits; the
		// groups that it shares with its neighbours are left out.
		padded := append(make([]byte, before), plain...)
		first, last := (before*8+5)/6, len(padded)*8/6
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			forms = append(forms, []byte(alphabet.EncodeToString(padded)[first:last]))
		}
	}

	slices.SortFunc(forms, bytes.Compare)

	return slices.CompactFunc(forms, bytes.Equal)
}

// unquoted is what stands between quotation marks.
func unquoted(quoted string) string { return quoted[1 : len(quoted)-1] }

// one is a secret of that name.
func (k *known) one(name string) string {
	return k.secrets[slices.IndexFunc(k.secrets, func(s secret) bool { return s.name == name })].text
}

// samples are one secret of each kind.
func (k *known) samples() []string {
	var texts []string
	seen := map[string]bool{}
	for _, s := range k.secrets {
		if !seen[s.name] {
			seen[s.name] = true
			texts = append(texts, s.text)
		}
	}
	return texts
}

// mustBeMany keeps the search from being one for nothing.
func (k *known) mustBeMany(t *testing.T) {
	t.Helper()
	if len(k.secrets) < 30 {
		t.Errorf("only %d secrets are searched for", len(k.secrets))
	}

	for _, s := range k.secrets {
		if len(s.text) < leastSecret {
			t.Errorf("%s is too short to be searched for", s.name)
		}
	}
}

func (k *known) search(t *testing.T, where string, content []byte) {
	t.Helper()
	k.searchExcept(t, where, content, "")
}

func (k *known) searchExcept(t *testing.T, where string, content []byte, except string) {
	t.Helper()
	for _, s := range k.secrets {
		if at := s.in(content); at >= 0 && s.name != except {
			// Not the secret itself: this is a log, too.
			t.Errorf("%s holds %s behind %q", where, s.name, content[max(0, at-80):at])
		}
	}
}

// in is where a secret begins in any of its forms; -1 for not found.
func (s *secret) in(content []byte) int {
	for _, form := range s.forms {
		if at := bytes.Index(content, form); at >= 0 {
			return at
		}
	}
	return -1
}

// hashed fails unless Redis has the digest of what is stored as such: so the
// search does find what there is.
func (k *known) hashed(t *testing.T, file []byte) {
	t.Helper()
	if !bytes.Contains(file, []byte("EVALSHA")) && !bytes.Contains(file, []byte("\r\nMULTI\r\n")) {
		return // a base without commands
	}

	for _, s := range k.secrets {
		stored := strings.Contains(s.name, "client secret") || s.name == "a session's id"
		digest := sha256.Sum256([]byte(s.text))
		if stored && !bytes.Contains(file, digest[:]) {
			t.Errorf("Redis has no digest of %s", s.name)
		}
	}
}

// noRecipient: who gets a parcel, where and how they are reached is nobody's to
// read in a log or a metric.
func noRecipient(t *testing.T, where string, content []byte) {
	t.Helper()
	for _, text := range append(slices.Clone(recipientData), "Sarıgülözü", "5457778899") {
		for _, form := range []string{text, unquoted(strconv.QuoteToASCII(text)), url.QueryEscape(text)} {
			if i := bytes.Index(content, []byte(form)); i >= 0 {
				t.Errorf("%s holds %q behind %q", where, text, content[max(0, i-80):i])
				break
			}
		}
	}
}

// shown is what the running system shows: metrics, its processes' command lines,
// Redis' own records.
func (e *env) shown(t *testing.T) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	for name, ops := range map[string]string{"gateway": e.Demo.OpsURL, "worker": e.Worker.OpsURL(), "reporting": e.Reporting.OpsURL()} {
		for _, path := range []string{"/metrics", "/readyz", "/healthz"} {
			found[name+path] = e.ask(t, http.MethodGet, ops+path, "").body
		}
		if len(found[name+"/metrics"]) < 1000 {
			t.Errorf("the metrics of %s are %d bytes", name, len(found[name+"/metrics"]))
		}
	}

	for _, p := range []*stack.Program{e.Gateway, e.Worker, e.Reporting, e.ClickHouse} {
		line, err := exec.CommandContext(t.Context(), "ps", "-o", "args=", "-p", strconv.Itoa(p.PID())).Output()
		must(t, err)
		found["the command line of "+p.Name] = line
	}

	for _, command := range [][]string{{"SLOWLOG", "GET", "-1"}, {"INFO"}, {"CLIENT", "LIST"}} {
		reply, err := e.Redis.Command(t.Context(), command...)
		must(t, err)
		found["Redis "+strings.Join(command, " ")] = []byte(reply)
	}

	return found
}

// tables adds every table of ClickHouse, which are compressed on the disk, once
// the last of the orders has come there.
func (e *env) tables(t *testing.T, found map[string][]byte) {
	t.Helper()
	query := func(text string) []byte {
		r := e.ask(t, http.MethodPost, e.Demo.ClickHouseURL, text)
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", text, r.status, r.body)
		}
		return r.body
	}

	await(t, "the delivered orders are in ClickHouse", func() bool {
		return strings.TrimSpace(string(query("SELECT uniqExact(order_id) FROM delivery.orders FINAL WHERE status = 'Delivered'"))) == "2"
	})
	names := string(query(`SELECT database || '.' || name FROM system.tables WHERE engine NOT LIKE '%View%' AND
		(database NOT IN ('system', 'INFORMATION_SCHEMA', 'information_schema') OR name LIKE '%_log') FORMAT TSVRaw`))
	for name := range strings.FieldsSeq(names) {
		found["ClickHouse "+name] = query("SELECT * FROM " + name + " FORMAT TSVRaw")
	}

	if !strings.Contains(names, "delivery.orders") || len(found["ClickHouse delivery.orders"]) < 100 {
		t.Errorf("ClickHouse has %s", names)
	}
}
