package composetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"vendorapi/internal/stack"
)

// What docker-compose.yml says, read as `docker compose config` reads it. This needs no
// Docker.

func moduleFile(t *testing.T, name string) string {
	t.Helper()
	root, err := stack.ModuleDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, name)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(moduleFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// keys are the variables that `make env` writes.
var keys = []string{
	"ENVIRONMENT", "REDIS_GATEWAY_PASSWORD", "REDIS_WORKER_PASSWORD", "REDIS_REPORTING_PASSWORD", "REDIS_BACKUP_PASSWORD", "REDIS_OPERATOR_PASSWORD",
	"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "BOOKS_KEYS", "ADMIN_KEY", "CLICKHOUSE_PASSWORD", "REPORTS_TOKEN", "REPORT_TOKENS", "GRAFANA_PASSWORD",
}

// loadProject reads the file with these variables only.
func loadProject(t *testing.T, env map[string]string) (*types.Project, error) {
	t.Helper()
	var variables []string
	for name, value := range env {
		variables = append(variables, name+"="+value)
	}

	file := moduleFile(t, "docker-compose.yml")
	options, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(variables), cli.WithProfiles([]string{"*"}), cli.WithWorkingDirectory(filepath.Dir(file)))
	if err != nil {
		t.Fatal(err)
	}

	return options.LoadProject(t.Context())
}

// written is what .env has after `make env`, and more.
func written(more ...string) map[string]string {
	env := map[string]string{}
	for _, name := range keys {
		env[name] = "value-of-" + name
	}

	for i := 0; i+1 < len(more); i += 2 {
		env[more[i]] = more[i+1]
	}
	return env
}

// programs are the services of the programs, each with its settings file.
func programs(t *testing.T, p *types.Project) map[string]string {
	t.Helper()
	files := map[string]string{}
	for name, s := range p.Services {
		if s.Build != nil {
			command := s.Command
			files[name] = "configs" + strings.TrimPrefix(command[len(command)-1], "/configs")
		}
	}

	if len(files) != 6 {
		t.Fatalf("programs: %v", files)
	}

	return files
}

var named = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]*)`)

// variablesOf are those that a text names as ${NAME…}.
func variablesOf(text string) (names []string) {
	for _, found := range named.FindAllStringSubmatch(text, -1) {
		isExample := found[1] == "NAME" // in the first lines of a settings file
		if !isExample && !slices.Contains(names, found[1]) {
			names = append(names, found[1])
		}
	}
	return names
}

// ownOfCompose are variables that docker-compose.yml sets by itself: where programs listen
// and find each other, and which replica one is.
var ownOfCompose = []string{
	"GATEWAY_ADDR", "FLEET_API_ADDR", "OPS_ADDR", "WORKER_OPS_ADDR", "REPORTING_OPS_ADDR", "PANEL_ADDR", "TRACKING_ADDR",
	"REDIS_URL", "CLICKHOUSE_URL", "OPS_URL", "PANEL_PROGRAMS", "WORKER_INSTANCE", "REPORTING_INSTANCE",
	"PANEL_PROXY_PROTOCOL_FROM", // PROXY_PROTOCOL_FROM
}

// notInCompose are files of certificates, of which there are none between containers: the
// balancer ends TLS.
var notInCompose = []string{
	"TLS_CERT_FILE", "TLS_KEY_FILE", "FLEET_TLS_CERT_FILE", "FLEET_TLS_KEY_FILE", "PRIVATE_TLS_CERT_FILE", "PRIVATE_TLS_KEY_FILE",
	"REDIS_CA_FILE", "REDIS_CERT_FILE", "REDIS_KEY_FILE",
}

// notOfBackup are variables of roles that the service backup does not have.
var notOfBackup = []string{"AUDIT_DAYS", "CLICKHOUSE_READ_URL", "PANEL_SECURE_COOKIES", "PANEL_TRUSTED_PROXIES", "PANEL_URL"}

func TestCompose_PassesEveryVariableOfASettingsFile(t *testing.T) {
	t.Parallel()

	env := written()
	for _, file := range []string{"configs/gateway.yaml", "configs/worker.yaml", "configs/reporting.yaml"} {
		for _, name := range variablesOf(readFile(t, file)) {
			env[name] = "passed-" + name
		}
	}

	p, err := loadProject(t, env)
	if err != nil {
		t.Fatal(err)
	}

	for service, file := range programs(t, p) {
		variables := variablesOf(readFile(t, file))
		if len(variables) < 15 {
			t.Errorf("%s names %v", file, variables)
		}

		for _, name := range variables {
			isOwn := slices.Contains(ownOfCompose, name)
			isElsewhere := slices.Contains(notInCompose, name) || service == "backup" && (slices.Contains(notOfBackup, name) || isOwn)
			if isElsewhere {
				continue
			}

			value := p.Services[service].Environment[name]
			switch {
			case value == nil:
				t.Errorf("%s of %s does not reach %s", name, file, service)
			case *value == env[name] && isOwn:
				t.Errorf("%s of .env breaks %s", name, service)
			case *value != env[name] && !isOwn:
				t.Errorf("%s of .env is %q at %s", name, *value, service)
			}
		}
	}
}

// A default of docker-compose.yml that is the settings file's own would have to be changed
// in two places.
func TestCompose_HasNoDefaultsOfItsOwnButWhereItsPlaceWantsThem(t *testing.T) {
	t.Parallel()

	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	ofPlace := []string{"TRACKING_BASE_URL", "SHUTDOWN_DELAY", "MAX_CONNECTIONS_PER_IP", "PROXY_PROTOCOL_FROM", "PANEL_SECURE_COOKIES", "ENVIRONMENT"}
	for service, file := range programs(t, p) {
		for _, name := range variablesOf(readFile(t, file)) {
			value := p.Services[service].Environment[name]
			if value != nil && *value != "" && !slices.Contains(ofPlace, name) && !slices.Contains(ownOfCompose, name) {
				t.Errorf("%s is %q at %s", name, *value, service)
			}
		}
	}
}

var (
	paragraphs = regexp.MustCompile("\n(?:\\s*\n|\\| | *- | *[0-9]+\\. |#| *```)")
	variable   = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b(?:PARTITIONS|COURIER|BACKUPS|ENVIRONMENT)\b`)
)

// documents tell people what to write into .env, or name variables in a table.
var documents = []string{
	"README.md", "docs/configuration.md", "docs/operations.md", "docs/keys.md", "docs/redis-servers.md", "docs/runbook.md",
	".github/SECURITY.md", "reporting/PANEL.md", "reporting/CLOSING.md", "loadtest/SIZING.md",
}

func TestCompose_TakesEveryVariableThatADocumentPutsIntoEnv(t *testing.T) {
	t.Parallel()

	taken := variablesOf(readFile(t, "docker-compose.yml"))
	found := 0
	for _, document := range documents {
		for _, paragraph := range paragraphs.Split(readFile(t, document), -1) {
			if !strings.Contains(paragraph, "`.env`") {
				continue
			}

			for _, name := range variable.FindAllString(paragraph, -1) {
				found++
				isSecretOfTarget := strings.HasPrefix(name, "DELIVER_") // in deliver.env
				if !slices.Contains(taken, name) && !slices.Contains(ownOfCompose, name) && !isSecretOfTarget {
					t.Errorf("%s says that %s of .env has an effect; docker-compose.yml does not take it:\n%s", document, name, paragraph)
				}
			}
		}
	}

	if found < 10 {
		t.Errorf("found %d variables of .env in the documents", found)
	}
}

func TestCompose_TakesEverySecret(t *testing.T) {
	t.Parallel()

	for service, names := range map[string][]string{
		"gateway-1": {"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "ADMIN_KEY", "ADMIN_KEYS"},
		"worker-1":  {"WEBHOOK_KEYS"},
		"reporting": {"PANEL_USERS", "REPORT_TOKENS", "ADMIN_KEY", "TRACKING_KEYS", "BOOKS_KEYS"},
		"backup":    {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
	} {
		for _, name := range names {
			p, err := loadProject(t, written(name, "passed"))
			if err != nil {
				t.Fatal(err)
			}
			if value := p.Services[service].Environment[name]; value == nil || *value != "passed" {
				t.Errorf("%s does not reach %s", name, service)
			}
		}
	}

	// Its own secrets stand in a file that need not be there.
	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	files := p.Services["reporting"].EnvFiles
	if len(files) != 1 || filepath.Base(files[0].Path) != "deliver.env" || files[0].Required {
		t.Errorf("reporting reads %v", files)
	}
}

func TestCompose_WantsTheEnvironmentToBeChosen(t *testing.T) {
	t.Parallel()

	env := written()
	for _, value := range []string{"", "unset"} {
		env["ENVIRONMENT"] = value
		if value == "unset" {
			delete(env, "ENVIRONMENT")
		}
		if _, err := loadProject(t, env); err == nil || !strings.Contains(err.Error(), "run make env ENVIRONMENT=sandbox, or ENVIRONMENT=production") {
			t.Errorf("ENVIRONMENT %q: %v", value, err)
		}
	}

	for _, chosen := range []string{"sandbox", "production"} {
		p, err := loadProject(t, written("ENVIRONMENT", chosen))
		if err != nil {
			t.Fatal(err)
		}

		for service := range programs(t, p) {
			if value := p.Services[service].Environment["ENVIRONMENT"]; value == nil || *value != chosen {
				t.Errorf("%s is not in %s", service, chosen)
			}
		}

		if value := p.Services["redis"].Environment["ENVIRONMENT"]; value == nil || *value != chosen {
			t.Errorf("the users of Redis are not those of %s", chosen)
		}
	}
}

func TestMakeEnv_WantsTheEnvironmentToBeChosen(t *testing.T) {
	t.Parallel()

	makeEnv := func(dir string, variables ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-f", moduleFile(t, "Makefile"), "env"}, variables...)...)
		cmd.Dir = dir
		cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
			return strings.HasPrefix(variable, "ENVIRONMENT=") || strings.HasPrefix(variable, "MAKE")
		})
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	for _, variables := range [][]string{nil, {"ENVIRONMENT="}, {"ENVIRONMENT=prod"}, {"ENVIRONMENT=Production"}} {
		dir := t.TempDir()
		out, err := makeEnv(dir, variables...)
		_, missing := os.Stat(filepath.Join(dir, ".env"))
		if err == nil || !strings.Contains(out, "make env ENVIRONMENT=sandbox") || !errors.Is(missing, os.ErrNotExist) {
			t.Errorf("%q: %v, %v, %s", variables, err, missing, out)
		}
	}

	for _, chosen := range []string{"sandbox", "production"} {
		dir := t.TempDir()
		out, err := makeEnv(dir, "ENVIRONMENT="+chosen)
		if err != nil {
			t.Fatalf("%s: %v, %s", chosen, err, out)
		}

		file := filepath.Join(dir, ".env")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		env := map[string]string{}
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			env[name] = value
		}

		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || env["ENVIRONMENT"] != chosen || len(env) != len(keys) {
			t.Errorf("%s: %v, %v", chosen, info.Mode(), env)
		}
		if _, err := loadProject(t, env); err != nil {
			t.Errorf("%s: %v", chosen, err)
		}
		if tells := strings.Contains(out, "TRACKING_BASE_URL"); tells != (chosen == "production") {
			t.Errorf("%s: it said %s", chosen, out)
		}
		if out, err := makeEnv(dir, "ENVIRONMENT="+chosen); err == nil || !strings.Contains(out, "there already") {
			t.Errorf("%s again: %v, %s", chosen, err, out)
		}
	}
}

// What a file says that is changed on the host is in force once its service is made again.
func TestCompose_ProgramsReadTheSettingsOfThisFolder(t *testing.T) {
	t.Parallel()

	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	for service, file := range programs(t, p) {
		isMounted := slices.ContainsFunc(p.Services[service].Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Type == types.VolumeTypeBind && v.Source == moduleFile(t, file) && v.Target == "/"+file && v.ReadOnly
		})
		if !isMounted {
			t.Errorf("%s does not read %s of this folder: %v", service, file, p.Services[service].Volumes)
		}
	}
}

// operations.md says which service is made again after which file has changed: `up -d` does
// not look into files that are mounted.
func TestOperations_SayWhatIsMadeAgainForAFile(t *testing.T) {
	t.Parallel()

	_, section, found := strings.Cut(readFile(t, "docs/operations.md"), "\n## Changing a setting\n")
	if !found {
		t.Fatal("operations.md has no section Changing a setting")
	}

	section, _, _ = strings.Cut(section, "\n## ")
	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	mounted := 0
	for service, s := range p.Services {
		for _, v := range s.Volumes {
			file, err := filepath.Rel(moduleFile(t, "."), v.Source)
			if v.Type != types.VolumeTypeBind || err != nil || !strings.HasPrefix(file, "configs/") {
				continue
			}

			mounted++
			isListed := false
			for line := range strings.Lines(section) {
				files, services, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
				names := func(file string) bool { return strings.Contains(files, "`"+file+"`") }
				isListed = isListed || (names(file) || names(filepath.Dir(file)+"/")) && strings.Contains(services, service)
			}

			if !isListed {
				t.Errorf("the section does not say that %s is made again after a change of %s", service, file)
			}
		}
	}

	if mounted < 15 {
		t.Errorf("%d files are mounted", mounted)
	}
}

// leastImages are the first releases that are good enough: those before lack published
// fixes, or belong to a line that gets none.
var leastImages = map[string][3]int{
	"haproxy": {3, 2, 22}, "grafana/grafana": {12, 4, 11}, "prom/prometheus": {3, 13, 5}, "prom/alertmanager": {0, 34, 2}, "prom/node-exporter": {1, 12, 1},
	"valkey/valkey": {8, 0, 10}, "clickhouse/clickhouse-server": {26, 7, 0},
}

var tag = regexp.MustCompile(`^([a-z/-]+):v?(\d+)\.(\d+)(?:\.(\d+))?(?:-[a-z]+)?$`)

func TestCompose_ImagesAreOfPatchedLines(t *testing.T) {
	t.Parallel()

	text := readFile(t, "docker-compose.yml")
	p, err := loadProject(t, written())
	if err != nil {
		t.Fatal(err)
	}

	for name, s := range p.Services {
		if s.Build != nil {
			continue
		}

		parts := tag.FindStringSubmatch(s.Image)
		if parts == nil {
			t.Errorf("%s: what release is %s?", name, s.Image)
			continue
		}

		var release [3]int
		for i, digits := range parts[2:] {
			release[i], _ = strconv.Atoi(digits) // none: 0
		}

		least, known := leastImages[parts[1]]
		if !known || slices.Compare(release[:], least[:]) < 0 {
			t.Errorf("%s: %s is older than %v", name, s.Image, least)
		}
		if places := strings.Count(text, s.Image); places != 1 {
			t.Errorf("%s stands in %d places", s.Image, places)
		}
	}
}
