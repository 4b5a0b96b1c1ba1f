package overlay

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module with one declaration of every kind.
var module = map[string]string{
	"go.mod": "module example\n\ngo 1.26\n",
	"main.go": `package main

import (
	_ "embed"
	"fmt"
)

const limit, other = 10, 1

var greeting = "hello"

type counter[T any] struct{ n int }

func (c *counter[T]) next() int { c.n++; return c.n }

//go:embed script.lua
var script string

func double(n int) int { return 2 * n }

func main() { fmt.Print(limit, " ", greeting, " ", new(counter[int]).next(), " ", double(4), " ", script) }
`,
	"script.lua":   "return 1",
	"main_test.go": "package main\n\nfunc onlyInTests() {}\n",
}

// A build with an overlay has what each file replaces, and the rest as it is.
func TestOverlay_ReplacesDeclarationsOfEveryKind(t *testing.T) {
	dir := writeFiles(t, module)
	sources := writeFiles(t, map[string]string{
		"const.go":   "package main\n\nconst limit = limitOriginal + 1\n",
		"var.go":     "package main\n\nvar greeting = greetingOriginal + \" there\"\n",
		"method.go":  "package main\n\nfunc (c *counter[T]) next() int { return c.nextOriginal() + 40 }\n",
		"func.go":    "package main\n\nfunc double(n int) int { return doubleOriginal(n) + 1 }\n",
		"script.lua": "return original(KEYS, ARGV) + 1",
	})

	o := New(dir)
	for _, name := range []string{"const.go", "var.go", "method.go", "func.go"} {
		noError(t, o.Replace(filepath.Join(sources, name), name))
	}

	noError(t, o.Replace(filepath.Join(sources, "script.lua"), "script.lua"))

	const want = "11 hello there 41 9 local function original(KEYS, ARGV)\nreturn 1\nend\nreturn original(KEYS, ARGV) + 1"
	if got := build(t, dir, o); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A file that stands at the path of what it replaces needs no other word, and a file can be
// hidden.
func TestOverlay_AddsATree(t *testing.T) {
	dir := writeFiles(t, module)
	noError(t, os.WriteFile(filepath.Join(dir, "broken.go"), []byte("package other\n"), 0o600))
	tree := writeFiles(t, map[string]string{
		"more.go":    "package main\n\nconst added = 3\n\nfunc double(n int) int { return added * n }\n",
		"script.lua": "return 3",
	})

	o := New(dir)
	o.Remove(filepath.Join(dir, "broken.go"))
	noError(t, o.AddTree(tree))

	const want = "10 hello 1 12 return 3"
	if got := build(t, dir, o); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReplace_RefusesWhatReplacesNothing(t *testing.T) {
	dir := writeFiles(t, module)
	cases := []struct{ name, file, text, wantError string }{
		{"an unknown constant", "a.go", "package main\n\nconst most = 1\n", "no most to be replaced"},
		{"an unknown variable", "a.go", "package main\n\nvar limit, farewell = 2, 3\n", "no farewell to be replaced"},
		{"an unknown type", "a.go", "package main\n\ntype gauge int\n", "no gauge to be replaced"},
		{"an unknown function", "a.go", "package main\n\nfunc triple() {}\n", "no triple to be replaced"},
		{"an unknown method", "a.go", "package main\n\nfunc (counter[T]) last() {}\n", "no counter.last to be replaced"},
		{"a method as a function", "a.go", "package main\n\nfunc next() {}\n", "no next to be replaced"},
		{"a function as a method", "a.go", "package main\n\nfunc (c *counter[T]) double() {}\n", "no counter.double to be replaced"},
		{"a declaration of a test", "a.go", "package main\n\nfunc onlyInTests() {}\n", "no onlyInTests to be replaced"},
		{"an unknown original", "a.go", "package main\n\nfunc double(n int) int { return tripleOriginal(n) }\n", "tripleOriginal is used"},
		{"another package", "a.go", "package other\n\nfunc double() {}\n", "is of package main"},
		{"a folder without a package", "none/a.go", "package main\n\nfunc double() {}\n", "no double to be replaced"},
		{"an unknown script", "none.lua", "return 2", "no such file"},
		{"an unknown function of a script", "script.lua", "local function triple() end\n", "no triple to be replaced"},
		{"comments of a script only", "script.lua", "-- return 2\n", "replaces nothing"},
		{"an empty script", "script.lua", "", "replaces nothing"},
		{"a function without an end", "script.lua", "local function double(n)\n  return n\n", "double has no end"},
		{"an end that is indented", "script.lua", "local function double(n)\n  return n\n  end\nreturn 2\n", "double has no end"},
		{"a function before another's end", "script.lua", "local function one()\nlocal function two()\nend\n", "one has no end"},
		{"no Go", "a.go", "package", "expected"},
		{"another language", "a.sql", "SELECT 1", "neither Go nor Lua"},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			sources := writeFiles(t, map[string]string{filepath.Base(c.file): c.text})

			err := New(dir).Replace(filepath.Join(sources, filepath.Base(c.file)), c.file)

			if err == nil || !strings.Contains(err.Error(), c.wantError) {
				t.Errorf("got %v, want an error with %q", err, c.wantError)
			}
		})
	}
}

// A second file of the same name is no problem, a second replacement is.
func TestReplace_RefusesASecondReplacement(t *testing.T) {
	dir := writeFiles(t, module)
	sources := writeFiles(t, map[string]string{
		"a.go": "package main\n\nfunc double(n int) int { return doubleOriginal(n) + 1 }\n",
		"b.go": "package main\n\nconst limit = 2\n",
	})

	o := New(dir)
	noError(t, o.Replace(filepath.Join(sources, "a.go"), "a.go"))
	noError(t, o.Replace(filepath.Join(sources, "b.go"), "a.go"))

	err := o.Replace(filepath.Join(sources, "a.go"), "a.go")

	if err == nil || !strings.Contains(err.Error(), "double has been replaced already") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestReplace_RefusesASecondReplacementInAScript(t *testing.T) {
	dir := writeFiles(t, module)
	sources := writeFiles(t, map[string]string{"script.lua": "return original(KEYS, ARGV)\n"})
	o := New(dir)
	noError(t, o.Replace(filepath.Join(sources, "script.lua"), "script.lua"))

	err := o.Replace(filepath.Join(sources, "script.lua"), "script.lua")

	if err == nil || !strings.Contains(err.Error(), "the script has been replaced already") {
		t.Errorf("got %v, want an error", err)
	}
}

func TestReplaceLua(t *testing.T) {
	const script = `-- Answers twice the first argument.
local FACTOR = 2
local function name() return 'n' end

local function double(n)
  if n then
    return n * FACTOR
  end
end
return name() .. double(ARGV[1])
`

	cases := []struct{ name, text, want string }{
		{"a function of one line", "-- Another name.\nlocal function name() return name_original() .. 'x' end\n", `-- Answers twice the first argument.
local FACTOR = 2
local function name_original() return 'n' end
local function name() return name_original() .. 'x' end

local function double(n)
  if n then
    return n * FACTOR
  end
end
return name() .. double(ARGV[1])
`},
		{"a function of several lines", "local function double(n)\n  return 3\nend\n", `-- Answers twice the first argument.
local FACTOR = 2
local function name() return 'n' end

local function double_original(n)
  if n then
    return n * FACTOR
  end
end
local function double(n)
  return 3
end
return name() .. double(ARGV[1])
`},
		{"statements around the script", "-- Of nothing.\nARGV[1] = 0\nreturn original(KEYS, ARGV)\n", `local function original(KEYS, ARGV)
` + script + `end
ARGV[1] = 0
return original(KEYS, ARGV)
`},
		{"a function and statements", "local function name() return 'x' end\nreturn original(KEYS, ARGV)\n", `local function original(KEYS, ARGV)
-- Answers twice the first argument.
local FACTOR = 2
local function name_original() return 'n' end
local function name() return 'x' end

local function double(n)
  if n then
    return n * FACTOR
  end
end
return name() .. double(ARGV[1])
end
return original(KEYS, ARGV)
`},
		{"statements instead of the script", "-- Nothing.\nreturn ''\n", "-- Nothing.\nreturn ''\n"},
		{"statements that call another original", "return the_original(KEYS, ARGV)\n", "return the_original(KEYS, ARGV)\n"},
		{"statements that mention the original", "return 1 -- not original(KEYS, ARGV)\n", "return 1 -- not original(KEYS, ARGV)\n"},
	}

	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := replaceLua(script, c.text)

			noError(t, err)
			if got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Add takes what is new, but not the original of what does not exist.
func TestAdd_RefusesAnUnknownOriginal(t *testing.T) {
	dir := writeFiles(t, module)
	sources := writeFiles(t, map[string]string{"a.go": "package main\n\nconst most = mostOriginal + 1\n"})

	err := New(dir).Add(filepath.Join(sources, "a.go"), "a.go")

	if err == nil || !strings.Contains(err.Error(), "mostOriginal is used") {
		t.Errorf("got %v, want an error", err)
	}
}

// build compiles the module with the overlay and returns what the program prints.
func build(t *testing.T, dir string, o *Overlay) string {
	t.Helper()
	file, err := o.Write(t.TempDir())
	noError(t, err)
	program := filepath.Join(t.TempDir(), "program")
	command := exec.Command("go", "build", "-overlay", file, "-o", program, ".")
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}

	output, err := exec.Command(program).Output()
	noError(t, err)

	return string(output)
}

// writeFiles writes files to a folder of the test and returns it.
func writeFiles(t *testing.T, texts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range texts {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
