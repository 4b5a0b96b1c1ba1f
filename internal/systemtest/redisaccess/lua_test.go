package redisaccess

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"vendorapi/internal/stack"
)

var (
	luaFunction = regexp.MustCompile(`(?m)^local function (\w+)\((?:[^\n]*\bend$|(?s:.*?)^end$)`)
	luaCall     = regexp.MustCompile(`\b(?:call|redis\.p?call)\(\s*'([A-Z]+)'(?:,\s*'([A-Z]+)')?`)
	luaAnyCall  = regexp.MustCompile(`\b(?:p?call)\(`)
	luaWord     = regexp.MustCompile(`\w+`)
	luaComment  = regexp.MustCompile(`(?m)--.*$`)
)

// luaSource is the scripts' functions and operations, by name: their text.
type luaSource map[string]string

func readLua(t *testing.T) luaSource {
	t.Helper()
	root, err := stack.ModuleDir()
	must(t, err)
	files, err := filepath.Glob(filepath.Join(root, ledgerPath, "lua", "*.lua"))
	must(t, err)
	lua := luaSource{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		text := luaComment.ReplaceAllString(string(content), "")
		for _, f := range luaFunction.FindAllStringSubmatch(text, -1) {
			lua[f[1]] += f[0] // two operations may each have one of that name: both count
		}
		// An operation is what is left of a file that is no shared part.
		lua["file "+strings.TrimSuffix(filepath.Base(file), ".lua")] = luaFunction.ReplaceAllString(text, "")
	}
	delete(lua, "fill_in_names")
	return lua
}

// commands are what an operation can send, through the functions it names.
func (lua luaSource) commands(t *testing.T, operation string) (commands []string) {
	t.Helper()
	seen := map[string]bool{}
	var follow func(name string)
	follow = func(name string) {
		text, known := lua[name]
		if !known || seen[name] {
			return
		}
		seen[name] = true
		calls := luaCall.FindAllStringSubmatch(text, -1)
		if all := luaAnyCall.FindAllString(text, -1); len(all) != len(calls) {
			t.Errorf("%s: %d of %d calls name no command", name, len(all)-len(calls), len(all))
		}
		for _, c := range calls {
			commands = append(commands, commandName(c[1], c[2]))
		}
		for _, word := range luaWord.FindAllString(text, -1) {
			follow(word)
		}
	}
	follow("file " + operation)
	return unique(commands)
}

// containers are the commands whose second word is part of their name.
var containers = []string{"XINFO", "XGROUP", "FUNCTION", "CLUSTER", "CLIENT", "ACL", "CONFIG", "SCRIPT"}

func commandName(first, second string) string {
	if slices.Contains(containers, first) {
		first += "|" + second
	}
	return strings.ToLower(first)
}

// fileOf is the Lua file of a field of the ledger's scripts.
func fileOf(script string) string {
	var b strings.Builder
	for _, r := range script {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
