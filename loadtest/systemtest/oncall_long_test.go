//go:build long

package systemtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"vendorapi/internal/stack"
)

// tool runs one of Prometheus's tools, which is fetched once.
func tool(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "sh", append([]string{moduleFile(t, "configs/prometheus/tool.sh"), name}, args...)...)
}

// installed is a program of a module that the Go proxy has, built once: some minutes. missing are files that
// the program embeds and that are in its releases, but not in the module: what it shows to people.
func installed(t *testing.T, module, pkg, version string, missing ...string) (path string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	must(t, err)
	dir := filepath.Join(cache, "vendorapi", filepath.Base(pkg)+"-"+version)
	path = filepath.Join(dir, filepath.Base(pkg))
	if _, err := os.Stat(path); err == nil {
		return path
	}

	run := func(in string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
		cmd.Stderr = new(strings.Builder)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, cmd.Stderr)
		}
		return out
	}

	var downloaded struct{ Dir string }
	must(t, json.Unmarshal(run(t.TempDir(), "mod", "download", "-json", module+"@"+version), &downloaded))
	source := t.TempDir()
	must(t, os.CopyFS(source, os.DirFS(downloaded.Dir)))
	for _, name := range missing {
		file := filepath.Join(source, name)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, nil, 0o644))
	}

	run(source, "build", "-o", path, "./"+pkg)

	return path
}

// start runs a server until the test ends and returns a reader of what it has said.
func start(t *testing.T, cmd *exec.Cmd) (said func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	must(t, err)
	cmd.Stdout, cmd.Stderr = out, out
	must(t, cmd.Start())
	said = func() string {
		text, err := os.ReadFile(log)
		must(t, err)
		return string(text)
	}

	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		out.Close()
		if t.Failed() {
			t.Logf("%s said:\n%s", cmd.Args, said())
		}
	})

	return said
}

func answers(url string) func() bool {
	return func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
}

// changed is a copy of a file of configs/ with other lines, each of which must be there.
func changed(t *testing.T, file string, replace ...string) string {
	t.Helper()
	text := readFile(t, filepath.Join("configs", file))
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("%s has no %q", file, replace[i])
		}
		text = strings.ReplaceAll(text, replace[i], replace[i+1])
	}

	path := filepath.Join(t.TempDir(), filepath.Base(file))
	must(t, os.WriteFile(path, []byte(text), 0o600))

	return path
}

// inbox is what a webhook of Alertmanager has been sent, as "path status alert job".
type inbox struct {
	mu   sync.Mutex
	seen []string
}

func (b *inbox) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var sent struct {
		Alerts []struct {
			Status string
			Labels map[string]string
		}
	}

	err := json.NewDecoder(r.Body).Decode(&sent)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.seen = append(b.seen, err.Error())
	}

	for _, a := range sent.Alerts {
		b.seen = append(b.seen, strings.TrimSpace(fmt.Sprint(r.URL.Path, " ", a.Status, " ", a.Labels["alertname"], " ", a.Labels["job"])))
	}
}

func (b *inbox) has(line string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.seen, line)
}

// A real Prometheus, to which nothing answers, and a real Alertmanager with the delivered
// settings but shorter times: the cause reaches whoever is to be woken, its symptoms do not
// until it is repaired, and the dead man's switch is pressed.
func TestOnCall_AlertsReachWhoIsToHearThem(t *testing.T) {
	t.Parallel()

	inbox := &inbox{}
	receiver := httptest.NewServer(inbox)
	t.Cleanup(receiver.Close)
	oncall := t.TempDir()
	for _, name := range []string{"page", "watchdog"} { // a secret may have what sed takes for its own
		must(t, os.WriteFile(filepath.Join(oncall, name+"-url"), []byte(receiver.URL+"/"+name+"?token=a|b&c\n"), 0o600))
	}

	tickets, manager, prometheus, gateway := stack.FreeAddr(), stack.FreeAddr(), stack.FreeAddr(), stack.FreeAddr()
	shown := start(t, exec.CommandContext(t.Context(), "haproxy", "-f", changed(t, "haproxy/alerts.cfg", "bind :9094", "bind "+tickets)))

	image := regexp.MustCompile(`prom/alertmanager:(v\S+)`).FindStringSubmatch(readFile(t, "docker-compose.yml"))
	alertmanager := exec.CommandContext(t.Context(), "sh", moduleFile(t, "configs/prometheus/alertmanager.sh"),
		"--web.listen-address="+manager, "--cluster.listen-address=", "--storage.path="+t.TempDir())
	alertmanager.Env = append(os.Environ(), "ONCALL="+oncall, "ALERTMANAGER="+installed(t, "github.com/prometheus/alertmanager", "cmd/alertmanager", image[1], "ui/app/dist/index.html"), "TMPDIR="+t.TempDir(),
		"CONFIG="+changed(t, "prometheus/alertmanager.yml", "group_wait: 30s", "group_wait: 10s", "group_interval: 5m", "group_interval: 5s",
			"http://alerts:9094/ticket", "http://"+tickets+"/ticket"))
	start(t, alertmanager)
	await(t, "Alertmanager is ready", answers("http://"+manager+"/-/ready"))

	alerts := changed(t, "prometheus/alerts.yml")
	text, err := os.ReadFile(alerts)
	must(t, err)
	must(t, os.WriteFile(alerts, regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAll(text, []byte("$1 2s")), 0o600))
	config := changed(t, "prometheus/prometheus.yml", "- alerts.yml", "- "+alerts, "alertmanager:9093", manager, "_interval: 15s", "_interval: 1s",
		"gateway-1:8081", gateway, "gateway-2:8081", "127.0.0.1:1", "worker-1:8082", "127.0.0.1:1", "worker-2:8082", "127.0.0.1:2",
		"reporting:8083", "127.0.0.1:1", "balancer:8405", "127.0.0.1:1", "disks:9100", "127.0.0.1:1")
	// What fires before it has found Alertmanager is dropped, and sent again after the delay.
	start(t, tool(t, "prometheus", "--rules.alert.resend-delay=5s", "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+prometheus))

	for _, want := range []string{"/watchdog firing Watchdog", "/page firing NoGateway", "/page firing NoWorker", "/page firing NoBalancer"} {
		await(t, want, func() bool { return inbox.has(want) })
	}

	want := "ticket firing warning TargetDown: disks at 127.0.0.1:1 does not answer Prometheus: alerts that hang on its figures cannot fire\n"
	await(t, "the receiver of compose shows a warning", func() bool { return strings.Contains(shown(), want) })
	for _, silenced := range []string{"/page firing RedisUnavailable", "/page firing BalancerHasNoServer"} {
		if inbox.has(silenced) {
			t.Errorf("%s: it has a cause that was told", silenced)
		}
	}

	if strings.Contains(shown(), "ProgramDown") {
		t.Errorf("every program was told of, besides that none answers:\n%s", shown())
	}

	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "vendorapi_ready 0\n") }))
	up.Listener.Close()
	up.Listener, err = net.Listen("tcp", gateway)
	must(t, err)
	up.Start()
	t.Cleanup(up.Close)
	for _, want := range []string{"/page resolved NoGateway", "/page firing RedisUnavailable"} {
		await(t, want, func() bool { return inbox.has(want) })
	}
}

// alerting is alertmanager.yml, as far as tests look at it.
type alerting struct {
	Inhibit []struct {
		Source []string `yaml:"source_matchers"`
		Target []string `yaml:"target_matchers"`
	} `yaml:"inhibit_rules"`
}

func TestOnCall_EveryAlertHasAReceiverAndInhibitionsNameAlerts(t *testing.T) {
	t.Parallel()

	receivers := map[string]string{"critical": "page", "warning": "ticket", "none": "watchdog"}
	known := map[string]bool{}
	for _, r := range readRules(t) {
		known[r.Alert] = true
		severity := r.Labels["severity"]
		out, err := tool(t, "amtool", "config", "routes", "test", "--config.file="+moduleFile(t, "configs/prometheus/alertmanager.yml"),
			"--verify.receivers="+receivers[severity], "alertname="+r.Alert, "severity="+severity).CombinedOutput()
		if err != nil || receivers[severity] == "" {
			t.Errorf("%s, %s: %v\n%s", r.Alert, severity, err, out)
		}
	}

	var c alerting
	must(t, yaml.Unmarshal([]byte(readFile(t, "configs/prometheus/alertmanager.yml")), &c))
	names := regexp.MustCompile(`alertname=~?"([^"]+)"`)
	for _, rule := range c.Inhibit {
		for _, found := range names.FindAllStringSubmatch(strings.Join(append(rule.Source, rule.Target...), "\n"), -1) {
			for name := range strings.SplitSeq(found[1], "|") {
				if !known[name] {
					t.Errorf("an inhibition names %s, which is no alert", name)
				}
			}
		}
	}

	if len(c.Inhibit) == 0 {
		t.Error("nothing is inhibited")
	}
}

// What the rules ask of others than our programs is exposed by them.
func TestOnCall_OthersExposeWhatRulesName(t *testing.T) {
	t.Parallel()

	balancer, disks := stack.FreeAddr(), stack.FreeAddr()
	start(t, exec.CommandContext(t.Context(), "haproxy", "-f", changed(t, "haproxy/haproxy.cfg", "bind :8080", "bind "+stack.FreeAddr(), "bind :8081", "bind "+stack.FreeAddr(),
		"bind :8090", "bind "+stack.FreeAddr(), "bind 127.0.0.1:8404", "bind "+stack.FreeAddr(), "bind :8405", "bind "+balancer,
		" resolvers docker init-addr last,libc,none", " init-addr none", "/usr/local/etc/haproxy", moduleFile(t, "configs/haproxy"), "maxconn 16384", "maxconn 100")))
	start(t, tool(t, "prometheus-node-exporter", "--web.listen-address="+disks, "--collector.disable-defaults", "--collector.filesystem"))
	exposed := ""
	for _, url := range []string{"http://" + balancer + "/metrics", "http://" + disks + "/metrics"} {
		await(t, url, answers(url))
		exposed += scrape(t, url)
	}

	for where, text := range expressions(t) {
		expr, err := parser.ParseExpr(text)
		must(t, err)
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok || !ofOthers.MatchString(v.Name) {
				return nil
			}

			for _, m := range append([]*labels.Matcher{{Name: "", Value: ""}}, v.LabelMatchers...) {
				if pattern := `(?m)^` + v.Name + `\{[^}]*\b` + m.Name; m.Name != labels.MetricName && m.Name != "environment" && !regexp.MustCompile(pattern).MatchString(exposed) {
					t.Errorf("%s: nobody exposes %s with the label %q", where, v.Name, m.Name)
				}
			}

			return nil
		})
	}
}
