package stack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// depsIn runs deps.sh on a machine that has nothing but the given commands,
// which are scripts.
func depsIn(t *testing.T, commands map[string]string, args ...string) (string, error) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range commands {
		script = strings.ReplaceAll("#!/bin/sh\n"+script+"\n", "$BIN", bin)

		// No process may be forked while the file is written: it would have the file open for writing until it has become
		// another program, and the script could not be started.
		syscall.ForkLock.RLock()
		err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}

	script, err := os.ReadFile("deps.sh") // by this process, so that go test runs the test again when it has changed
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("/bin/sh", append([]string{"-c", string(script), "deps.sh"}, args...)...)
	cmd.Env = []string{"PATH=" + bin, "CHROMIUM=" + os.Getenv("CHROMIUM")}
	out, err := cmd.CombinedOutput()

	return string(out), err
}

const (
	works = "exit 0"
	// apt-get that knows the packages only after an update, and then puts the
	// named program where it belongs.
	installs = `echo "$*" >>$BIN/apt.log
case $1 in
update) : >$BIN/updated ;;
install) [ -e $BIN/updated ] || { echo "E: no such package" >&2; exit 100; }
    printf '#!/bin/sh\n' >$BIN/redis-server; /bin/chmod +x $BIN/redis-server ;;
esac`
	// env runs the command after the assignments.
	runs = `while [ "${1#*=}" != "$1" ]; do shift; done; exec "$@"`
)

// Each name stands for a command, and for the packages that bring it.
func TestDeps_KnowsWhatToInstall(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct{ command, packages string }{
		"redis-server":  {"redis-server", "redis-server"},
		"valkey-server": {"valkey-server", "valkey-tools"},
		"curl":          {"curl", "curl"},
		"libreoffice":   {"soffice", "libreoffice-calc-nogui"},
		"chromium":      {"google-chrome", "chromium"},
	} {
		out, err := depsIn(t, map[string]string{"go": works, "id": "echo 0"}, name)
		if err == nil || !strings.Contains(out, "missing: "+c.packages+".") {
			t.Errorf("%s: %v, said %q", name, err, out)
		}
		if out, err := depsIn(t, map[string]string{"go": works, c.command: works}, name); err != nil || out != "" {
			t.Errorf("%s is there: %v, said %q", name, err, out)
		}
	}

	if out, err := depsIn(t, map[string]string{"go": works}, "emacs"); err == nil || !strings.Contains(out, "emacs is not known here") {
		t.Errorf("%v, said %q", err, out)
	}
}

// CHROMIUM names the browser instead of PATH, and is not taken on trust.
func TestDeps_ChromiumMayBeNamed(t *testing.T) {
	commands := map[string]string{"go": works, "id": "echo 0", "chromium": works}
	for named, wanted := range map[string]bool{"": false, "/bin/sh": false, "/no/such/browser": true} {
		t.Setenv("CHROMIUM", named)
		out, err := depsIn(t, commands, "chromium")
		if missing := strings.Contains(out, "missing: chromium."); missing != wanted || (err != nil) != wanted {
			t.Errorf("CHROMIUM=%q: %v, said %q", named, err, out)
		}
	}
}

// apt-get that has Valkey in the backports only.
const backported = `case $1 in
indextargets) echo "$2 $3" ;;
update) [ ! -e $BIN/added ] || : >$BIN/updated ;;
install) [ -e $BIN/updated ] || { echo "E: no such package" >&2; exit 100; }
    printf '#!/bin/sh\n' >$BIN/valkey-check-rdb; /bin/chmod +x $BIN/valkey-check-rdb ;;
esac`

// No service comes along that would start a server of its own.
func TestDeps_TakesValkeyFromBackports(t *testing.T) {
	t.Parallel()

	out, err := depsIn(t, map[string]string{
		"go": works, "id": "echo 0", "apt-get": backported, "env": runs,
		"tee": `while read -r line; do echo "$1: $line"; done >&2; : >$BIN/added`,
		"ln":  `[ "$*" = "-sf $BIN/valkey-check-rdb /usr/local/bin/valkey-server" ] && : >$BIN/valkey-server && /bin/chmod +x $BIN/valkey-server`,
	}, "valkey-server")
	if err != nil || !strings.Contains(out, "deps: installing valkey-tools\n") || !strings.Contains(out, "/etc/apt/sources.list.d/vendorapi-backports.list: ") || !strings.Contains(out, "-backports main") {
		t.Errorf("%v, said %q", err, out)
	}
	if _, err := depsIn(t, map[string]string{"go": works, "id": "echo 0", "apt-get": installs, "env": runs}, "redis-server"); err != nil {
		t.Errorf("another package needs no backports: %v", err)
	}
}

func TestDeps(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		commands map[string]string
		fails    bool
		want     string
	}{
		"skips what is there":  {map[string]string{"go": works, "redis-server": works, "gcc": works}, false, ""},
		"installs and says so": {map[string]string{"go": works, "gcc": works, "apt-get": installs, "env": runs, "id": "echo 0"}, false, "deps: installing redis-server\n"},
		"uses sudo":            {map[string]string{"go": works, "gcc": works, "apt-get": installs, "env": runs, "id": "echo 1000", "sudo": `exec "$@"`}, false, "deps: installing redis-server\n"},
		"no sudo":              {map[string]string{"go": works, "gcc": works, "apt-get": installs, "id": "echo 1000"}, true, "Run as root"},
		"no apt-get":           {map[string]string{"go": works, "gcc": works, "id": "echo 0"}, true, "missing: redis-server. There is no apt-get"},
		"no go":                {map[string]string{}, true, "Go is missing"},
		"apt-get fails":        {map[string]string{"go": works, "gcc": works, "apt-get": "exit 1", "env": runs, "id": "echo 0"}, true, "installing redis-server"},
		"nothing comes of it":  {map[string]string{"go": works, "gcc": works, "apt-get": works, "env": runs, "id": "echo 0"}, true, "still missing"},
		"gcc without libc":     {map[string]string{"go": works, "redis-server": works, "gcc": "exit 1", "id": "echo 0"}, true, "missing: gcc libc6-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := depsIn(t, c.commands, "redis-server", "gcc")
			if (err != nil) != c.fails || !strings.Contains(out, c.want) || c.want == "" && out != "" {
				t.Errorf("%v, said %q", err, out)
			}
		})
	}
}
