package systemtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/doc"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/stack"
)

// goPackage is what `go list -json` says of a package of this module.
type goPackage struct {
	ImportPath   string
	Name         string
	Dir          string
	Doc          string
	Imports      []string
	TestImports  []string
	XTestImports []string
	GoFiles      []string
}

// testbed reports whether the package is there for tests only.
func (p *goPackage) testbed() bool { return slices.Contains(p.Imports, "testing") }

func goPackages(t *testing.T) (packages []goPackage) {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	must(t, err)
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, "vendorapi/")
		packages = append(packages, p)
	}
}

// rooms says where a library may be used; everywhere else it is out of place.
var rooms = map[string][]string{
	"github.com/redis/go-redis":       {"internal/ledger"},
	"github.com/go-redis/redis_rate":  {"internal/ledger"},
	"github.com/valyala/fasthttp":     {"gateway"},
	"github.com/fasthttp/router":      {"gateway"},
	"github.com/ClickHouse/":          {"reporting"},
	"github.com/ebitengine/purego":    {"reporting/engine/libchdb"},
	"github.com/andybalholm/brotli":   {"reporting/engine"},
	"github.com/spf13/cobra":          {"reporting"},
	"github.com/alexedwards/argon2id": {"reporting/access"},
	"github.com/xuri/excelize":        {"reporting/reports"},
	"github.com/rivo/uniseg":          {"reporting/reports"},
	"golang.org/x/term":               {"reporting"},
	"golang.org/x/text":               {"reporting/access", "reporting/tracking"},
	"github.com/chromedp/":            {"loadtest/chromium", "internal/systemtest/browser"},
	"github.com/goccy/go-yaml":        {"internal/config", "internal/systemtest"},
	"github.com/getkin/kin-openapi":   {"gateway/openapi/contract", "gateway/openapi/derive"},
	"github.com/swaggest/swgui":       {"gateway/docs"},
	"github.com/yuin/goldmark":        {"gateway/docs"},
	"github.com/schollz/progressbar":  {"loadtest/demo", "reporting"},
	"github.com/compose-spec/":        {"internal/systemtest/containers"},
	"github.com/prometheus/":          {"gateway", "worker", "reporting", "internal/ops"},
	"github.com/prometheus/procfs":    {"loadtest"},
	"github.com/Shopify/toxiproxy":    {"loadtest/faults", "internal/systemtest"},
	"github.com/google/licensecheck":  {"internal/licences"},
	"github.com/anishathalye/":        {"loadtest/faults/judge"},
	"github.com/golang-jwt/jwt":       {"gateway", "reporting"},
	"github.com/bytedance/sonic":      {"gateway"},
	"go.opentelemetry.io/":            {"internal/tracing", "internal/systemtest/observability"},
	"vendorapi/internal/tracing":      {"gateway", "worker", "reporting"},
	"net/http":                        {"gateway", "worker", "reporting", "loadtest", "internal/ops", "internal/tracing", "internal/stack", "internal/systemtest"},
	"database/sql":                    {"reporting"},
	"vendorapi/internal/ledger":       {"gateway", "worker", "reporting", "loadtest/webhooks", "loadtest/reporting", "loadtest/screenshots", "loadtest/faults", "loadtest/overload"},
	"vendorapi/internal/stack":        {"loadtest", "internal/stack", "internal/systemtest"},
	"vendorapi/loadtest":              {"loadtest", "internal/systemtest"},
	"vendorapi/internal/systemtest":   {},
	"vendorapi/gateway":               {"gateway"},
	"vendorapi/worker":                {"worker"},
	"vendorapi/reporting":             {"reporting"},
	"vendorapi/internal/webhook":      {"gateway", "worker", "reporting", "internal/ledger"},
	"vendorapi/internal/ops":          {"gateway", "worker", "reporting", "loadtest"},
	"vendorapi/internal/config":       {"gateway", "worker", "reporting"},
}

// testRooms says where a library may be used by tests besides its room.
var testRooms = map[string][]string{
	// The gateway's benchmarks measure it against the plain ways to do the
	// ledger's work, which are written with the libraries themselves.
	"github.com/redis/go-redis":      {"gateway"},
	"github.com/go-redis/redis_rate": {"gateway"},
	// What the worker sends, and what the whole system answers, is held against the
	// published documents too.
	"vendorapi/gateway/openapi/contract": {"worker/dispatch", "internal/systemtest"},
	"github.com/prometheus/":             {"internal/systemtest/observability"},
	"github.com/compose-spec/":           {"internal/systemtest/containers"},
	"go.opentelemetry.io/":               {"internal/systemtest/observability"},
	// It plays vendors and fleets for the tests of what reads their history.
	"vendorapi/internal/testenv": {"reporting"},
	// A Redis whose clock is wrong.
	"vendorapi/loadtest/shim": {"worker/status"},
}

// pure packages may import nothing of this module but what is listed, so that
// the domain knows nothing of what carries it.
var pure = map[string][]string{
	"internal/delivery": {},
	"internal/webhook":  {},
	"internal/config":   {},
	"internal/ops":      {},
	"internal/tracing":  {},
	"internal/ledger":   {"vendorapi/internal/delivery", "vendorapi/internal/webhook"},
}

func TestArrows_PointOneWay(t *testing.T) {
	t.Parallel()
	packages := goPackages(t)
	for _, p := range packages {
		if p.testbed() {
			p.TestImports, p.Imports = slices.Concat(p.TestImports, p.Imports), nil
		}
		for _, imported := range p.Imports {
			if slices.ContainsFunc(packages, func(q goPackage) bool { return q.testbed() && "vendorapi/"+q.ImportPath == imported }) {
				t.Errorf("%s imports %s, which is for tests", p.ImportPath, imported)
			}
			if room, ok := roomOf(rooms, imported); ok && !within(p.ImportPath, room) {
				t.Errorf("%s imports %s, whose room is %v", p.ImportPath, imported, room)
			}
			if allowed, ok := pure[p.ImportPath]; ok && strings.HasPrefix(imported, "vendorapi/") && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s, allowed are %v", p.ImportPath, imported, allowed)
			}
		}
		// Tests may start a Redis and play a vendor; beyond that they keep to
		// the same rooms.
		for _, imported := range slices.Concat(p.TestImports, p.XTestImports) {
			room, ok := roomOf(rooms, imported)
			if !ok || imported == "net/http" || strings.HasPrefix(imported, "vendorapi/internal/") {
				continue
			}
			besides, _ := roomOf(testRooms, imported)
			if !within(p.ImportPath, room) && !within(p.ImportPath, besides) {
				t.Errorf("the tests of %s import %s, whose room is %v", p.ImportPath, imported, room)
			}
		}
	}
}

// roomOf is the room of the longest prefix that names the import.
func roomOf(list map[string][]string, imported string) (room []string, found bool) {
	longest := ""
	for prefix, r := range list {
		whole := imported == prefix || strings.HasPrefix(imported, strings.TrimSuffix(prefix, "/")+"/")
		if whole && len(prefix) > len(longest) {
			longest, room, found = prefix, r, true
		}
	}
	return room, found
}

func within(path string, room []string) bool {
	return slices.ContainsFunc(room, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") })
}

// Names that say nothing about what a package owns.
var emptyNames = []string{"util", "utils", "common", "helpers", "helper", "base", "types", "models", "model", "misc", "shared", "lib", "core", "pkg"}

func TestPackages_SayWhatTheyOwn(t *testing.T) {
	t.Parallel()
	for _, p := range goPackages(t) {
		if slices.Contains(emptyNames, filepath.Base(p.ImportPath)) || slices.Contains(emptyNames, p.Name) {
			t.Errorf("%s: the name says nothing", p.ImportPath)
		}
		opening := "Package " + p.Name + " "
		if p.Name == "main" {
			opening = "" // a program says what it does in words of its own
		}
		if p.Doc == "" || !strings.HasPrefix(p.Doc, opening) {
			t.Errorf("%s: the package comment begins %q", p.ImportPath, p.Doc)
		}
		if len(p.GoFiles) > 0 && len(strings.TrimSpace(new(doc.Package).Synopsis(p.Doc))) < 20 {
			t.Errorf("%s: the package comment says too little: %q", p.ImportPath, p.Doc)
		}
	}
}

// The top level of the repository, complete.
var top = []string{
	"gateway", "worker", "reporting", "loadtest", "configs", "internal",
	"go.mod", "go.sum", "Makefile", "docker-compose.yml", "README.md",
}

func TestTopLevel_HoldsNothingElse(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	entries, err := os.ReadDir(root)
	must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(top, e.Name()) {
			t.Errorf("%s has no place at the top", e.Name())
		}
	}
}

// unfinished are the marks of work left for later, and of tests that can leave
// themselves out. Spelled so that it does not find itself.
var unfinished = regexp.MustCompile(`\b(TO[D]O|FIXM[E]|XX[X]|HAC[K]|t\.Ski[p](f|Now)?\()`)

// Files stay short enough to be read, and nothing is left for later.
func TestSources_AreShortAndFinished(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); e.IsDir() || ext != ".go" && ext != ".lua" && ext != ".sh" && ext != ".js" {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if lines := bytes.Count(content, []byte("\n")); lines > 400 {
			t.Errorf("%s has %d lines", path, lines)
		}
		if mark := unfinished.Find(content); mark != nil {
			t.Errorf("%s contains %s", path, mark)
		}
		return nil
	})
	must(t, err)
}
