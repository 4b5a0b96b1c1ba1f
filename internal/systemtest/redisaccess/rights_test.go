package redisaccess

import (
	"slices"
	"strings"
	"testing"
)

// methodCommands are the client's methods that are not called like their command.
var methodCommands = map[string]string{
	"FCall": "fcall", "Process": "fcall", "NewStringCmd": "",
	"FunctionLoad": "function|load", "FunctionList": "function|list", "FunctionDelete": "function|delete",
	"XGroupCreate": "xgroup|create", "XGroupCreateMkStream": "xgroup|create", "XGroupDestroy": "xgroup|destroy",
	"XInfoGroups": "xinfo|groups", "XInfoStream": "xinfo|stream", "XInfoConsumers": "xinfo|consumers",
	"XRangeN": "xrange", "XRevRangeN": "xrevrange", "XTrimMinID": "xtrim", "XPendingExt": "xpending",
	"ZAddXX": "zadd", "ZAddNX": "zadd", "ZRangeByScoreWithScores": "zrangebyscore", "ZRangeWithScores": "zrange",
	"SetNX": "set", "SetArgs": "set", "ClusterSlots": "cluster|slots", "Do CLUSTER MYID": "cluster|myid",
	// The rate limiter's, its script included.
	"Allow": "eval evalsha time get set", "AllowAtMost": "eval evalsha time get set", "Reset": "del",
	"TxPipeline": "multi exec", "ForEachMaster": "", "Exec": "", "Dialer": "", "MasterForKey": "",
}

// always are what every user needs: what the client says on a new connection (HELLO
// and AUTH need no right), whether the server is there, and of a cluster who
// serves what.
var always = []string{"ping", "info", "cluster|slots", "command", "asking", "readonly"}

// commandsOf translates what the source names.
func commandsOf(t *testing.T, r reach, lua luaSource) (commands []string) {
	t.Helper()
	for _, use := range r.outside {
		method, _, _ := strings.Cut(use, " ")
		switch command, known := methodCommands[use]; {
		case known:
			commands = append(commands, strings.Fields(command)...)
		default:
			if command, known = methodCommands[method]; !known {
				command = strings.ToLower(method)
			}
			commands = append(commands, strings.Fields(command)...)
		}
	}
	for _, script := range r.scripts {
		commands = append(commands, lua.commands(t, fileOf(script))...)
	}
	return commands
}

// users are the programs, the files that are theirs, and what they send besides
// what the source shows by name.
var users = []struct {
	name, program string
	mine          func(pkg, file string) bool
	besides       []string
	// without are commands that the shared code can send and the user must not: the
	// library is loaded, and cleared away, by gateway and worker only.
	without []string
}{
	{name: "gateway", program: "gateway", mine: func(string, string) bool { return true }},
	{name: "worker", program: "worker", mine: func(string, string) bool { return true }},
	{name: "reporting", program: "reporting", without: loading,
		mine: func(pkg, file string) bool { return !ofBackup(pkg, file) }},
	{name: "backup", program: "reporting", without: loading,
		// A snapshot is asked for on a connection of its own, in plain words.
		besides: []string{"sync", "replconf"},
		mine: func(pkg, file string) bool {
			return ofBackup(pkg, file) || file == "connect.go"
		}},
}

var loading = []string{"function|load", "function|list", "function|delete"}

func ofBackup(pkg, file string) bool {
	return pkg == "reporting/backup" || pkg == "reporting" && (strings.HasPrefix(file, "backup") || strings.HasPrefix(file, "restore"))
}

func TestUsers_MayDoExactlyWhatTheirProgramsCan(t *testing.T) {
	t.Parallel()
	s, lua, granted := readSource(t), readLua(t), grants(t)
	for _, u := range users {
		r := s.program(u.program, u.mine)
		if len(r.outside) < 10 {
			t.Fatalf("%s: only %v was found in the source", u.name, r.outside)
		}
		needed := slices.Concat(always, u.besides, commandsOf(t, r, lua))
		needed = slices.DeleteFunc(unique(needed), func(c string) bool { return slices.Contains(u.without, c) })
		for _, c := range needed {
			if !slices.Contains(granted[u.name], c) {
				t.Errorf("%s can send %s, which configs/redis-users.acl does not allow it", u.name, c)
			}
		}
		for _, c := range granted[u.name] {
			if !slices.Contains(needed, c) {
				t.Errorf("%s may send %s, which nothing in it does", u.name, c)
			}
		}
	}
}

// grants are the commands of every user, wherever in its rules.
func grants(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for line := range strings.Lines(string(rendered(t))) {
		words := strings.Fields(line)
		for _, w := range words[2:] {
			if command, ok := strings.CutPrefix(strings.Trim(w, "()"), "+"); ok {
				found[words[1]] = append(found[words[1]], command)
			}
		}
	}
	return found
}
