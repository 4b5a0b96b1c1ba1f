package systemtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/stack"
)

// compose is the part of docker-compose.yml that can be wrong about this
// repository.
type compose struct {
	Services map[string]struct {
		Image string `yaml:"image"`
		Build struct {
			Context, Dockerfile string
		} `yaml:"build"`
		Command     []string          `yaml:"command"`
		Environment map[string]string `yaml:"environment"`
		Volumes     []string          `yaml:"volumes"`
		DependsOn   map[string]any    `yaml:"depends_on"`
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
}

func read(t *testing.T, name string) string {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	content, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(content)
}

// Without Docker's engine the images cannot be built here; that everything the
// file names exists in this repository can be checked all the same.
func TestCompose_NamesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	var c compose
	must(t, yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c))
	dockerfile := read(t, "configs/Dockerfile")
	for _, name := range []string{"redis", "balancer", "gateway-1", "gateway-2", "worker-1", "worker-2", "clickhouse", "reporting", "prometheus", "grafana"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("no service %s", name)
		}
	}
	for name, s := range c.Services {
		for needed := range s.DependsOn {
			if _, ok := c.Services[needed]; !ok {
				t.Errorf("%s depends on %s, which is no service", name, needed)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, named := c.Volumes[source]; strings.HasPrefix(source, "./") {
				read(t, source)
			} else if !named {
				t.Errorf("%s mounts %s, which is no volume", name, source)
			}
		}
		if s.Build.Dockerfile == "" {
			continue
		}
		read(t, s.Build.Dockerfile)
		// /gateway -config /configs/gateway.yaml: both come from the image.
		program, config := strings.TrimPrefix(s.Command[0], "/"), strings.TrimPrefix(s.Command[len(s.Command)-1], "/")
		if !strings.Contains(dockerfile, " ./"+program) || !strings.Contains(dockerfile, " "+config+" ") {
			t.Errorf("%s runs %v; the image does not hold it", name, s.Command)
		}
		settings := read(t, config)
		for variable := range s.Environment {
			if !strings.Contains(settings, "${"+variable+":-") && !slices.Contains(secretVariables, variable) {
				t.Errorf("%s sets %s, which %s does not read", name, variable, config)
			}
		}
	}
}

var secretVariables = []string{"TOKEN_KEYS", "TRACKING_KEYS", "WEBHOOK_KEYS", "ADMIN_KEY", "PANEL_USERS", "REPORT_TOKENS"}

func TestDockerfile_CopiesOnlyWhatExists(t *testing.T) {
	t.Parallel()
	root, err := stack.ModuleDir()
	must(t, err)
	ignored := strings.Fields(read(t, ".dockerignore"))
	for _, match := range regexp.MustCompile(`(?m)^(?:COPY|.*go build .*?/out/) ([^\n]+)$`).FindAllStringSubmatch(read(t, "configs/Dockerfile"), -1) {
		words := strings.Fields(match[1])
		if strings.HasPrefix(words[0], "--from") {
			continue
		}
		if strings.HasPrefix(match[0], "COPY") {
			words = words[:len(words)-1] // the last one is the destination
		}
		for _, w := range words {
			if _, err := os.Stat(filepath.Join(root, w)); err != nil || slices.Contains(ignored, w) {
				t.Errorf("%s: %s is not there for the build", match[0], w)
			}
		}
	}
}
