//go:build long

package systemtest

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"vendorapi/internal/testenv/testserver"
)

// variables are those that `make env` writes, with values that say so.
var variables = []string{
	"ENVIRONMENT",
	"REDIS_GATEWAY_PASSWORD", "REDIS_WORKER_PASSWORD", "REDIS_REPORTING_PASSWORD", "REDIS_BACKUP_PASSWORD", "REDIS_OPERATOR_PASSWORD",
	"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "BOOKS_KEYS", "ADMIN_KEY", "CLICKHOUSE_PASSWORD", "REPORT_TOKENS", "GRAFANA_PASSWORD",
}

// project is docker-compose.yml as `docker compose config` would read it.
func project(t *testing.T, without string, env []string, profiles ...string) (*types.Project, error) {
	t.Helper()
	for _, name := range variables {
		if name != without {
			env = append(env, name+"=value-of-"+name)
		}
	}

	file := moduleFile(t, "docker-compose.yml")
	options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(env), cli.WithProfiles(profiles), cli.WithWorkingDirectory(filepath.Dir(file)))
	must(t, err)

	return options.LoadProject(t.Context())
}

func whole(t *testing.T) *types.Project {
	t.Helper()
	p, err := project(t, "", nil, "observe")
	must(t, err)
	return p
}

func TestCompose_RefusesAMissingKeyAndSaysHowToGetIt(t *testing.T) {
	t.Parallel()

	for _, name := range variables {
		if _, err := project(t, name, nil); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "run make env") {
			t.Errorf("without %s: %v", name, err)
		}
		if !strings.Contains(readFile(t, "configs/env.sh"), strings.TrimSuffix(strings.TrimPrefix(name, "REDIS_"), "_PASSWORD")) {
			t.Errorf("make env does not write %s", name)
		}
	}
}

var pinned = regexp.MustCompile(`:v?[0-9]+\.[0-9]+(\.[0-9]+)?(-[a-z0-9]+)?(@sha256:[0-9a-f]{64})?$`)

func TestCompose_EveryServiceIsPinnedWatchedAndHeldBack(t *testing.T) {
	t.Parallel()

	for name, s := range whole(t).Services {
		check := s.HealthCheck
		isWatched := check != nil && len(check.Test) > 0 && check.Interval != nil && check.Timeout != nil && check.Retries != nil
		if !isWatched {
			t.Errorf("%s has no whole health check", name)
		}
		if s.Restart != "unless-stopped" {
			t.Errorf("%s restarts %q", name, s.Restart)
		}
		if s.Build == nil && !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %s is not pinned", name, s.Image)
		}

		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %s on %q", name, p.Published, p.HostIP)
			}
		}

		hasBoundedLog := s.Logging != nil && s.Logging.Options["max-size"] != "" && s.Logging.Options["max-file"] != ""
		if !hasBoundedLog {
			t.Errorf("%s may fill the disk with its log", name)
		}
		if s.MemLimit == 0 {
			t.Errorf("%s may take all memory", name)
		}

		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s may gain rights", name)
		}

		needsNoRights := s.Build != nil || name == "redis" || name == "balancer"
		hasNoRights := s.ReadOnly && slices.Contains(s.CapDrop, "ALL")
		if needsNoRights && !hasNoRights {
			t.Errorf("%s has more rights than it needs", name)
		}
	}
}

// Prometheus asks nobody for a password, so it takes what others write only where the settings say so.
func TestCompose_PrometheusTakesRemoteWritesOnlyWhenAsked(t *testing.T) {
	t.Parallel()

	const receiver = "--web.enable-remote-write-receiver"
	for _, env := range [][]string{nil, {"PROMETHEUS_FLAGS=" + receiver}} {
		p, err := project(t, "", env, "observe")
		must(t, err)

		command := p.Services["prometheus"].Command
		if slices.Contains(command, "") || slices.Contains(command, receiver) != (env != nil) {
			t.Errorf("with %q Prometheus is started with %q", env, command)
		}
	}
}

func TestCompose_ReplicasDifferWhereTheyMust(t *testing.T) {
	t.Parallel()

	p := whole(t)

	instances := map[string]string{}
	published := map[string]string{}
	for name, s := range p.Services {
		for _, variable := range []string{"WORKER_INSTANCE", "REPORTING_INSTANCE"} {
			value := s.Environment[variable]
			if value == nil {
				continue
			}
			if other := instances[*value]; other != "" || *value == "" {
				t.Errorf("%s and %s are both %q within the consumer groups", name, other, *value)
			}
			instances[*value] = name
		}

		for _, port := range s.Ports {
			if other := published[port.Published]; other != "" {
				t.Errorf("%s and %s publish %s", name, other, port.Published)
			}
			published[port.Published] = name
		}
	}

	if len(instances) != 3 {
		t.Errorf("instances %v", instances)
	}

	// Apart from their names, replicas are the same.
	for _, pair := range [][2]string{{"gateway-1", "gateway-2"}, {"worker-1", "worker-2"}} {
		a, b := p.Services[pair[0]], p.Services[pair[1]]
		if fmt.Sprint(a.Command, a.HealthCheck.Test, a.Image) != fmt.Sprint(b.Command, b.HealthCheck.Test, b.Image) || len(a.Environment) != len(b.Environment) {
			t.Errorf("%v differ", pair)
		}

		for variable, value := range a.Environment {
			if other := b.Environment[variable]; variable != "WORKER_INSTANCE" && (other == nil || *other != *value) {
				t.Errorf("%v differ in %s", pair, variable)
			}
		}
	}
}

func TestCompose_ProgramsAskThemselvesWithTheirOwnSettings(t *testing.T) {
	t.Parallel()

	for name, s := range whole(t).Services {
		if s.Build == nil {
			continue
		}

		// -config FILE, the last two words of both.
		command, check := []string(s.Command), []string(s.HealthCheck.Test)
		if check[0] != "CMD" || check[1] != command[0] || !slices.Equal(check[len(check)-2:], command[len(command)-2:]) {
			t.Errorf("%s runs %v and asks %v", name, command, check)
		}

		if !slices.Contains(check, "-health") && !slices.Contains(check, "--health") {
			t.Errorf("%s asks %v", name, check)
		}
	}
}

// With what `make env` writes each program takes its settings, as a sandbox at once, and in
// production when it has been told what customers' links begin with.
func TestCompose_ProgramsTakeWhatMakeEnvWrites(t *testing.T) {
	t.Parallel()

	programs := testserver.Programs(t)
	for _, environment := range []string{"sandbox", "production"} {
		dir := t.TempDir()
		write := exec.CommandContext(t.Context(), "make", "-s", "-f", moduleFile(t, "Makefile"), "env", "ENVIRONMENT="+environment)
		write.Dir = dir
		if out, err := write.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}

		written, err := os.ReadFile(filepath.Join(dir, ".env"))
		must(t, err)
		file := moduleFile(t, "docker-compose.yml")
		load := func(more ...string) *types.Project {
			options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(append(strings.Fields(string(written)), more...)), cli.WithWorkingDirectory(filepath.Dir(file)))
			must(t, err)
			p, err := options.LoadProject(t.Context())
			must(t, err)
			return p
		}

		check := func(p *types.Project, service string) (string, error) {
			s := p.Services[service]
			args := []string{"-check-config", "-config"}
			if service == "reporting" {
				args = []string{"serve", "--check-config", "--config"}
			}

			settings := strings.TrimPrefix(s.Command[len(s.Command)-1], "/")
			cmd := exec.CommandContext(t.Context(), filepath.Join(programs, strings.TrimPrefix(s.Command[0], "/")), append(args, moduleFile(t, settings))...)
			cmd.Env = []string{"HOME=/"}
			for name, value := range s.Environment {
				cmd.Env = append(cmd.Env, name+"="+*value)
			}

			out, err := cmd.CombinedOutput()

			return string(out), err
		}

		out, err := check(load(), "gateway-1")
		isProduction := environment == "production"
		if isProduction != (err != nil) || isProduction != strings.Contains(out, ": tracking_base_url: ") {
			t.Errorf("%s without TRACKING_BASE_URL: %v\n%s", environment, err, out)
		}

		p := load("TRACKING_BASE_URL=https://teslimat.vendorapi.com.tr/track", "PARTITIONS=64", "MAX_IN_FLIGHT=99", "OWN_PORTS=9999", "REDIS_DURABILITY=replica")
		for service, wants := range map[string][]string{
			"gateway-1": {"partitions: 64", "max_in_flight: 99", "durability: replica", "delay: 4s"},
			"worker-1":  {"partitions: 64", `own_ports: "9999"`, "durability: replica"},
			"reporting": {"partitions: 64", "durability: replica", "audit_days: 730"},
		} {
			out, err := check(p, service)
			for _, want := range append(wants, "environment: "+environment) {
				if err != nil || !strings.Contains(out, want) {
					t.Errorf("%s of a %s: %v, want %q in\n%s", service, environment, err, want, out)
				}
			}
		}
	}
}

var target = regexp.MustCompile(`\b([a-z]+(?:-[0-9]+)?):(80[0-9]{2})\b`)

// What the balancer, Prometheus and Grafana are configured to reach are services, at the
// ports that these listen on.
func TestTargets_AreServicesAndTheirPorts(t *testing.T) {
	t.Parallel()

	p := whole(t)

	listens := func(s types.ServiceConfig, port string) bool {
		for _, value := range s.Environment {
			if value != nil && *value == "0.0.0.0:"+port {
				return true
			}
		}
		return false
	}

	for name, want := range map[string]int{"configs/haproxy/haproxy.cfg": 14, "configs/prometheus/prometheus.yml": 5} {
		found := target.FindAllStringSubmatch(readFile(t, name), -1)
		if len(found) != want {
			t.Errorf("%s names %v, want %d targets", name, found, want)
		}

		for _, f := range found {
			if s, ok := p.Services[f[1]]; !ok || !listens(s, f[2]) {
				t.Errorf("%s names %s, and no service listens there", name, f[0])
			}
		}
	}

	if !strings.Contains(readFile(t, "configs/grafana/datasource.yml"), "http://prometheus:9090") {
		t.Error("Grafana asks somebody else than the service prometheus")
	}
}

// Behind a balancer every connection has its address, unless its PROXY header is
// believed: a limit for each address would be one for all vendors together. And Redis has
// a limit, without which no alert warns of full memory.
func TestCompose_LimitsAreThoseOfItsPlace(t *testing.T) {
	t.Parallel()

	p := whole(t)

	for _, name := range []string{"gateway-1", "gateway-2"} {
		if from := p.Services[name].Environment["PROXY_PROTOCOL_FROM"]; from == nil || !strings.HasPrefix(*from, "172.16.0.0/12") {
			t.Errorf("%s believes the balancer at %v", name, from)
		}
	}

	for variable, want := range map[string]string{"PANEL_SECURE_COOKIES": "true", "PANEL_TRUSTED_PROXIES": "", "PANEL_PROXY_PROTOCOL_FROM": "172.16.0.0/12", "TRACKING_ADDR": "0.0.0.0:8084"} {
		if value := p.Services["reporting"].Environment[variable]; value == nil || !strings.HasPrefix(*value, want) {
			t.Errorf("reporting's %s is %v", variable, value)
		}
	}

	if command := strings.Join(p.Services["redis"].Command, " "); !regexp.MustCompile(` --maxmemory [1-9][0-9]*(mb|gb)\b`).MatchString(command) {
		t.Errorf("redis has no limit of memory: %s", command)
	}

	// The container's limit never ends a Redis that its own would let be.
	for _, c := range []struct {
		env  []string
		want types.UnitBytes
	}{
		{nil, 3 << 30},
		{[]string{"REDIS_MAXMEMORY=8gb"}, 993 << 30},
		{[]string{"REDIS_MAXMEMORY=8gb", "REDIS_MEMORY_LIMIT=11g"}, 11 << 30},
	} {
		if p, err := project(t, "", c.env); err != nil || p.Services["redis"].MemLimit != c.want {
			t.Errorf("with %v Redis's container is limited to %v: %v", c.env, p.Services["redis"].MemLimit, err)
		}
	}

	if !strings.Contains(readFile(t, "configs/redis.conf"), "\nmaxmemory-policy noeviction\n") {
		t.Error("a full Redis drops orders")
	}
}

func TestCompose_RunsTheClickHouseThatTheTestsRunOn(t *testing.T) {
	t.Parallel()

	resp, err := http.Get(testserver.SharedClickHouse(t).URL + "/?query=SELECT+version()")
	must(t, err)
	defer resp.Body.Close()
	version, err := io.ReadAll(resp.Body)
	must(t, err)
	if image, line, _ := strings.Cut(whole(t).Services["clickhouse"].Image, ":"); !strings.HasPrefix(string(version), line+".") {
		t.Errorf("%s:%s, and the tests run on %s", image, line, version)
	}
}

// A -X that names no variable is no error of the linker.
func TestDockerfile_ProgramsSayWhichReleaseTheyAre(t *testing.T) {
	t.Parallel()

	flags := regexp.MustCompile(`ARG FLAGS="(.*)"`).FindStringSubmatch(readFile(t, "configs/Dockerfile"))[1]
	flags = strings.NewReplacer("${VERSION}", "1.2.3", "${REVISION}", "abcdef").Replace(flags)
	program := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags="+flags, "-o", program, "vendorapi/worker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), program, "--version").Output(); err != nil || !strings.HasPrefix(string(out), "worker 1.2.3 (commit abcdef, ") {
		t.Errorf("%v, %q", err, out)
	}
	if image := whole(t).Services["worker-1"].Image; image != "vendorapi:dev" {
		t.Errorf("the image %s has no version", image)
	}
}

func TestDockerfile_EndsWithoutRoot(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(readFile(t, "configs/Dockerfile")), "\n")
	if user, ok := strings.CutPrefix(lines[len(lines)-1], "USER "); !ok || strings.HasPrefix(user, "0") || strings.HasPrefix(user, "root") {
		t.Errorf("the last line is %q", lines[len(lines)-1])
	}
}
