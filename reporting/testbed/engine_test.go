package testbed

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestEngine_KeepsAddressAndTablesOverKillAndStop(t *testing.T) {
	t.Parallel()
	e := StartEngine(t)
	url := e.URL
	e.Exec(t, "CREATE TABLE numbers (n UInt32) ENGINE = MergeTree ORDER BY n")
	for i, end := range []func(testing.TB){e.Kill, e.Stop} {
		e.Exec(t, "INSERT INTO numbers VALUES ("+strconv.Itoa(i)+")")
		end(t)
		if conn, err := net.Dial("tcp", e.addr); err == nil {
			conn.Close()
			t.Fatalf("%s still answers", e.addr)
		}
		e.Start(t)
	}
	if got := e.Exec(t, "SELECT groupArray(n) FROM (SELECT n FROM numbers ORDER BY n)"); got != "[0,1]\n" || e.URL != url {
		t.Errorf("%q at %s, was at %s", got, e.URL, url)
	}
}

func TestSharedEngine_IsOneForAll(t *testing.T) {
	t.Parallel()
	e := SharedEngine(t)
	if again := SharedEngine(t); again != e {
		t.Error("two shared engines")
	}
	name := e.NewDatabase(t)
	if other := e.NewDatabase(t); other == name {
		t.Errorf("%q twice", name)
	}
	if got := e.Exec(t, "SELECT count() FROM system.databases WHERE name = '"+name+"'"); strings.TrimSpace(got) != "0" {
		t.Errorf("%s is there already", name)
	}
	if _, err := os.Stat(e.dir); err != nil {
		t.Error(err)
	}
}
