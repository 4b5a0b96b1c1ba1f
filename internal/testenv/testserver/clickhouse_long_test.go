//go:build long

package testserver

import "testing"

func TestDedicatedClickHouse_KeepsAddressAndTables(t *testing.T) {
	c := DedicatedClickHouse(t)
	url, database := c.URL, c.NewDatabase(t)
	c.Exec(t, "CREATE DATABASE "+database)
	c.Exec(t, "CREATE TABLE "+database+".rows (n UInt64) ENGINE = MergeTree ORDER BY n")
	stop := func(t testing.TB) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}

	for i, end := range []func(testing.TB){c.Kill, stop} {
		c.Exec(t, "INSERT INTO "+database+".rows VALUES (1)")
		end(t)
		c.Start(t)
		if got, want := c.Exec(t, "SELECT count() FROM "+database+".rows"), string(rune('1'+i))+"\n"; got != want || c.URL != url {
			t.Errorf("%s has %q rows, want %q at %s", c.URL, got, want, url)
		}
	}
}

func TestNewDatabase_IsDroppedWithItsTest(t *testing.T) {
	c := SharedClickHouse(t)
	var name string
	t.Run("a test", func(t *testing.T) {
		name = c.NewDatabase(t)
		c.Exec(t, "CREATE DATABASE "+name)
	})

	if got := c.Exec(t, "EXISTS DATABASE "+name); got != "0\n" {
		t.Errorf("database %s is still there: %s", name, got)
	}
}
