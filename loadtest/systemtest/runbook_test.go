package systemtest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"vendorapi/internal/testenv/commands"
)

// rules are alerts.yml. The Go package that reads it in Prometheus brings a
// hundred modules along; promtool (make lint CHECK=alerts) checks the rest.
type rules struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []rule `yaml:"rules"`
	} `yaml:"groups"`
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func readRules(t *testing.T) (all []rule) {
	t.Helper()
	var r rules
	must(t, yaml.UnmarshalWithOptions([]byte(readFile(t, "configs/prometheus/alerts.yml")), &r, yaml.Strict()))
	for _, g := range r.Groups {
		if g.Name == "" {
			t.Error("a group has no name")
		}
		all = append(all, g.Rules...)
	}

	if len(all) == 0 {
		t.Fatal("no rules")
	}

	return all
}

// sectionsOf returns the sections of a document under their anchors, each with its heading.
func sectionsOf(text string) map[string]string {
	sections := map[string]string{}
	for i, section := range strings.Split(text, "\n## ") {
		heading, _, _ := strings.Cut(section, "\n")
		if i > 0 {
			sections[anchorOf(heading)] = section
		}
	}
	return sections
}

// anchorOf returns what a link to a heading ends in.
func anchorOf(heading string) string {
	anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(anchor, " ", "-")
}

// Whoever is woken by an alert finds its section by the address in the alert, by its name, and in
// the index, which says in bold that it wakes.
func TestRunbook_HasASectionForEachAlert(t *testing.T) {
	t.Parallel()

	text := readFile(t, "docs/runbook.md")
	sections := sectionsOf(text)
	rows := strings.Split(sections["index"], "\n")

	for _, r := range readRules(t) {
		anchor, isInRunbook := strings.CutPrefix(r.Annotations["runbook_url"], "docs/runbook.md#")
		section := sections[anchor]
		if !isInRunbook || !strings.Contains(section, "**"+r.Alert+"**") {
			t.Errorf("alert %s has no section at %s", r.Alert, r.Annotations["runbook_url"])
		}

		entry := " " + r.Alert
		if r.Labels["severity"] == "critical" {
			entry = " **" + r.Alert + "**"
		}

		isIndexed := slices.ContainsFunc(rows, func(row string) bool {
			isNamed := strings.Contains(row, entry+",") || strings.Contains(row, entry+" |")
			return isNamed && strings.Contains(row, "(#"+anchor+")")
		})
		if !isIndexed {
			t.Errorf("the index has no row with%s that leads to #%s", entry, anchor)
		}
	}
}

// Every section is of one form, and is in the index.
func TestRunbook_SectionsAreAlike(t *testing.T) {
	t.Parallel()

	text := readFile(t, "docs/runbook.md")
	sections := sectionsOf(text)
	for anchor, section := range sections {
		isFirstPage := slices.Contains([]string{"what-runs-where", "begin", "is-it-healthy", "never", "index"}, anchor)
		if isFirstPage {
			continue
		}

		rest := section
		for _, label := range []string{"\n- **People see**", "\n  ```sh\n", "\n- **Do.**", "\n- **Wake** "} {
			_, after, isThere := strings.Cut(rest, label)
			if !isThere {
				t.Errorf("#%s has no %q in its place", anchor, strings.TrimSpace(label))
			}
			rest = after
		}

		if !strings.Contains(sections["index"], "(#"+anchor+")") {
			t.Errorf("#%s is not in the index", anchor)
		}
	}

	for _, link := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		if sections[link[1]] == "" {
			t.Errorf("a link leads to #%s, which is no section", link[1])
		}
	}
}

// A link from another document to the runbook, and from the runbook to another, leads to a heading.
func TestRunbook_LinksToAndFromOtherDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()

	link := regexp.MustCompile(`\]\(([A-Za-z0-9_./-]+\.md)#([^)]*)\)`)
	toRunbook, fromRunbook := 0, 0
	for _, document := range allDocuments(t) {
		content, err := os.ReadFile(document)
		must(t, err)

		for _, found := range link.FindAllStringSubmatch(string(content), -1) {
			path, anchor := found[1], found[2]
			isFrom := filepath.Base(document) == "runbook.md"
			isTo := filepath.Base(path) == "runbook.md"
			switch {
			case isFrom:
				fromRunbook++
			case isTo:
				toRunbook++
			default:
				continue
			}

			target, err := os.ReadFile(filepath.Join(filepath.Dir(document), path))
			if err != nil {
				t.Errorf("%s: %v", document, err)
				continue
			}

			if !hasHeading(string(target), anchor) {
				t.Errorf("%s: %s has no heading for #%s", document, path, anchor)
			}
		}
	}

	if toRunbook == 0 || fromRunbook == 0 {
		t.Errorf("found %d links to the runbook and %d from it", toRunbook, fromRunbook)
	}
}

// allDocuments returns the paths of all Markdown files of the module, without those of hidden folders
// and of packages that are installed.
func allDocuments(t *testing.T) (documents []string) {
	t.Helper()
	root := filepath.Dir(moduleFile(t, "go.mod"))
	must(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		isHidden := path != root && strings.HasPrefix(entry.Name(), ".")
		isForeign := entry.Name() == "node_modules" || entry.Name() == "vendor"
		if entry.IsDir() && (isHidden || isForeign) {
			return filepath.SkipDir
		}

		if !entry.IsDir() && filepath.Ext(path) == ".md" {
			documents = append(documents, path)
		}

		return nil
	}))

	return documents
}

// hasHeading reports whether a document has a heading that a link with the anchor leads to.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		heading := strings.TrimLeft(line, "#")
		isHeading := heading != line
		if isHeading && anchorOf(strings.TrimSpace(heading)) == anchor {
			return true
		}
	}
	return false
}

// sourced runs a line in a shell that has sourced runbook.sh with an argument, or without, in a folder
// that has the files of a system.
func sourced(t *testing.T, shell, argument, line string, files ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "docker-compose.yml"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(dir, ".data"), 0o700))
	for _, file := range files {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte("OPS_URL=http://127.0.0.1:1\n"), 0o600))
	}

	script := moduleFile(t, "configs/prometheus/runbook.sh")
	cmd := exec.CommandContext(t.Context(), shell, "-c", "set -- "+argument+"\n. "+script+" || exit\n"+line)
	cmd.Dir = dir
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "DATA_DIR=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}

	out, err := cmd.CombinedOutput()

	return string(out), err
}

// runbook.sh finds out which system it talks to, and says so, or says what it needs.
func TestRunbookScript_FindsItsSystem(t *testing.T) {
	t.Parallel()

	cases := []struct {
		files          []string
		argument, want string
		refuses        bool
	}{
		{files: []string{".env"}, want: "docker-compose.yml on this host:"},
		{files: []string{".data/demo.env"}, want: "make run in .data:"},
		{files: []string{".env", ".data/demo.env"}, argument: "compose", want: "docker-compose.yml on this host:"},
		{files: []string{".env", ".data/demo.env"}, argument: "run", want: "make run in .data:"},
		{files: []string{".env", ".data/demo.env"}, want: "say compose or run", refuses: true},
		{want: "neither .env", refuses: true},
		{argument: "run", want: "there is no .data/demo.env", refuses: true},
		{argument: "compose", want: "there is no .env", refuses: true},
		{files: []string{".env"}, argument: "kubernetes", want: "neither compose nor run", refuses: true},
	}

	for _, shell := range []string{"sh", "bash"} {
		for _, c := range cases {
			out, err := sourced(t, shell, c.argument, "", c.files...)
			if !strings.Contains(out, c.want) || (err != nil) != c.refuses {
				t.Errorf("%s, %q with %q: %v\n%s", shell, c.argument, c.files, err, out)
			}
		}
	}
}

// Where both systems have left their files, the one that runs is meant.
func TestRunbookScript_PrefersWhatRuns(t *testing.T) {
	t.Parallel()

	// The shell itself is the run: it has a child while it looks.
	dir := t.TempDir()
	for name, content := range map[string]string{"docker-compose.yml": "", ".env": "", "demo.env": "OPS_URL=http://127.0.0.1:1\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo $$ > lock\n. "+moduleFile(t, "configs/prometheus/runbook.sh"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "DATA_DIR=.")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "make run in .:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// What is printed when runbook.sh is sourced is what there is, for both systems.
func TestRunbookScript_ListsItsFunctions(t *testing.T) {
	t.Parallel()

	functions, err := commands.Functions()
	must(t, err)
	slices.Sort(functions)
	if len(functions) < 10 {
		t.Fatalf("found the functions %q", functions)
	}

	for argument, file := range map[string]string{"compose": ".env", "run": ".data/demo.env"} {
		out, err := sourced(t, "sh", argument, "for name in "+strings.Join(functions, " ")+"; do type $name >&2 || exit; done", file)
		if err != nil {
			t.Errorf("%s: %v\n%s", argument, err, out)
		}

		var listed []string
		for _, found := range regexp.MustCompile(`(?m)^  ([a-z_]+) `).FindAllStringSubmatch(out, -1) {
			if !slices.Contains(listed, found[1]) {
				listed = append(listed, found[1])
			}
		}

		slices.Sort(listed)
		if !slices.Equal(listed, functions) {
			t.Errorf("%s: listed are %q, defined are %q", argument, listed, functions)
		}
	}
}

// Whoever runs it, instead of sourcing it, or sources it elsewhere, learns how.
func TestRunbookScript_SaysHowItIsSourced(t *testing.T) {
	t.Parallel()

	script := moduleFile(t, "configs/prometheus/runbook.sh")
	for line, want := range map[string]string{
		"sh " + script: "source it",
		". " + script:  "go to the folder of the project",
	} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
