// Package rules checks that every rule of the contract is held by a test. The rules
// are the lines of docs/spec/rules.txt. A test of the gate that holds one says so in
// a directive above it or at the line that does:
//
//	//rule:limits/post-orders errors/RATE_LIMITED
//	func TestOrderLimits_HoldExactly(t *testing.T) {
//
// A directive shows a name. That the test fails when the rule is broken is shown by command
// prove, which breaks each rule by itself and runs the tests that name it. The defects stand in
// testdata/defects, under the paths of the packages that they change (package overlay), all in
// one build: each is a case of a switch on broken.Rule.
package rules

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"vendorapi/internal/testenv/overlay"
)

// DefectsFolder has the defects, in the module.
const DefectsFolder = "internal/rules/testdata/defects"

// A Test names a rule in a directive.
type Test struct {
	Package string // the folder of the package, in the module
	Name    string
	IsLong  bool // the gate does not run it
}

// List returns the ids of all rules of the module in a folder, in the order of the documents.
func List(module string) (ids []string, err error) {
	text, err := os.ReadFile(filepath.Join(module, "docs/spec/rules.txt"))
	if err != nil {
		return nil, err
	}

	for line := range strings.Lines(string(text)) {
		id := strings.TrimSpace(line)
		if id != "" && !strings.HasPrefix(id, "#") {
			ids = append(ids, id)
		}
	}

	return ids, nil
}

// Tests returns the tests of the module in a folder by the ids that their directives name.
func Tests(module string) (map[string][]Test, error) {
	found := make(map[string][]Test)
	err := filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		isHidden := strings.HasPrefix(entry.Name(), ".") && path != module
		if entry.IsDir() && isHidden { // such as .git and .data, where other programs write
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}

		return readDirectives(module, path, found)
	})

	return found, err
}

var functionDeclaration = regexp.MustCompile(`^func (\w+)\(`)

func readDirectives(module, path string, found map[string][]Test) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	folder, err := filepath.Rel(module, filepath.Dir(path))
	if err != nil {
		return err
	}

	test := Test{Package: folder, IsLong: strings.HasSuffix(path, "_long_test.go")}

	var above []string // the ids of directives whose function follows
	for line := range strings.Lines(string(source)) {
		declaration := functionDeclaration.FindStringSubmatch(line)
		if declaration != nil {
			test.Name = declaration[1]
			for _, id := range above {
				found[id] = append(found[id], test)
			}
			above = nil
			continue
		}

		ids, isDirective := strings.CutPrefix(strings.TrimSpace(line), "//rule:")
		isInside := strings.HasPrefix(line, "\t")
		switch {
		case !isDirective:
		case isInside:
			for _, id := range strings.Fields(ids) {
				found[id] = append(found[id], test)
			}
		default:
			above = append(above, strings.Fields(ids)...)
		}
	}

	if len(above) > 0 {
		return fmt.Errorf("%s: no function follows the directive of %s", path, strings.Join(above, ", "))
	}

	return nil
}

// Defects returns an overlay that has every defect, and the ids of the rules that they break.
func Defects(module string) (o *overlay.Overlay, ids []string, err error) {
	o = overlay.New(module)
	root := filepath.Join(module, DefectsFolder)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		target, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		broken, err := cases(path)
		if err != nil {
			return err
		}

		ids = append(ids, broken...)

		return o.Replace(path, target)
	})

	slices.Sort(ids)

	return o, slices.Compact(ids), err
}
