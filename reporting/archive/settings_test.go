package archive

import (
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

//rule:finance/database-delivery-tables-orders-and
func TestSettings_Forms(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		settings Settings
		address  string
		protocol clickhouse.Protocol
		secure   bool
		user     string
		database string
	}{
		{Settings{URL: "http://127.0.0.1:8123"}, "127.0.0.1:8123", clickhouse.HTTP, false, "", "delivery"},
		{Settings{URL: "http://127.0.0.1"}, "127.0.0.1:8123", clickhouse.HTTP, false, "", "delivery"},
		{Settings{URL: "https://ch.example"}, "ch.example:8443", clickhouse.HTTP, true, "", "delivery"},
		{Settings{URL: "https://finance:s%40cret@ch.example:443/money?dial_timeout=2s"}, "ch.example:443", clickhouse.HTTP, true, "finance", "money"},
		{Settings{URL: "clickhouse://ch.example"}, "ch.example:9000", clickhouse.Native, false, "", "delivery"},
		{Settings{URL: "clickhouse://ch.example?secure=true", Database: "d"}, "ch.example:9440", clickhouse.Native, true, "", "d"},
		{Settings{URL: "clickhouse://a:9000,b:9000/d", Database: "d", Cluster: "main-1"}, "a:9000,b:9000", clickhouse.Native, false, "", "d"},
		{Settings{URL: "http://[::1]/d"}, "[::1]:8123", clickhouse.HTTP, false, "", "d"},
	} {
		o, err := c.settings.options()
		if err != nil {
			t.Errorf("%+v: %v", c.settings, err)
			continue
		}

		if strings.Join(o.Addr, ",") != c.address || o.Protocol != c.protocol || (o.TLS != nil) != c.secure ||
			o.Auth.Username != c.user || o.Auth.Database != c.database {
			t.Errorf("%+v: %v %v %v %+v", c.settings, o.Addr, o.Protocol, o.TLS, o.Auth)
		}

		if c.user != "" && o.Auth.Password != "s@cret" {
			t.Errorf("password %q", o.Auth.Password)
		}

		noError(t, c.settings.Validate())
	}
}

func TestSettings_RefusalsAreClearAndKeepThePassword(t *testing.T) {
	t.Parallel()

	for want, s := range map[string]Settings{
		"no address of ClickHouse":              {},
		"wanted is http://, https://":           {URL: "tcp://u:SECRET@host"},
		"not a URL such as http://host":         {URL: "127.0.0.1:8123/SECRET?x"},
		"wanted is http://":                     {URL: "localhost:8123"},
		"and a host":                            {URL: "http:///delivery"},
		"not a URL":                             {URL: "http://u:SECRET@host:port"},
		"not a URL such as":                     {URL: "http://u:SECRET%zz@host"},
		`names the database "a", database says`: {URL: "http://u:SECRET@host/a", Database: "b"},
		`database "a-b"`:                        {URL: "http://u:SECRET@host", Database: "a-b"},
		"database \"a/b\"":                      {URL: "http://u:SECRET@host/a/b"},
		"database \"1a\"":                       {URL: "http://host", Database: "1a"},
		"cluster \"a'b\"":                       {URL: "http://host", Cluster: "a'b"},
		"dial timeout":                          {URL: "http://u:SECRET@host?dial_timeout=soon"},
		"http with TLS":                         {URL: "http://u:SECRET@host?secure=true"},
		"compress_level":                        {URL: "http://u:SECRET@host?compress_level=x"},
	} {
		err := s.Validate()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", want, err)
		}
		if _, err := Open(s); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: Open says %v", want, err)
		}
	}
}

// The user who only reads reaches the same database.
func TestSettings_ForReading(t *testing.T) {
	t.Parallel()

	for want, s := range map[string]Settings{
		"w delivery": {URL: "http://w@h"},
		"r delivery": {URL: "http://w@h", ReadURL: "http://r@h"},
		"r money":    {URL: "http://w@h/money", ReadURL: "clickhouse://r@other"},
		"r finance":  {URL: "http://w@h", ReadURL: "http://r@h/finance", Database: "finance"},
	} {
		noError(t, s.Validate())
		reading := s.ForReading()
		o, err := reading.options()
		noError(t, err)
		if got := o.Auth.Username + " " + o.Auth.Database; got != want {
			t.Errorf("%+v: %s", s, got)
		}
	}

	other := Settings{URL: "http://w@h/a", ReadURL: "http://r:SECRET@h/b"}
	if err := other.Validate(); err == nil || !strings.Contains(err.Error(), "read_url") || strings.Contains(err.Error(), "SECRET") {
		t.Error(err)
	}
}

// Whatever the settings hold, reading them ends in options or in an error that
// does not show the password.
func FuzzSettings(f *testing.F) {
	f.Add("http://u:", "@host:8123/d?compress=lz4", "", "")
	f.Add("clickhouse://u:", "@a:1,b:2?secure=true&skip_verify=1", "delivery", "main")
	f.Add("https://", "", "x", "")
	f.Fuzz(func(t *testing.T, before, after, database, cluster string) {
		const password = "Zq8pWx3vKt"
		if strings.Contains(before+after+database+cluster, password) {
			return
		}

		s := Settings{URL: before + password + after, Database: database, Cluster: cluster}
		o, err := s.options()
		if err == nil && !databaseNames.MatchString(o.Auth.Database) {
			t.Errorf("%+v: database %q", s, o.Auth.Database)
		}

		// In the place of a password it is not shown.
		scheme, user, _ := strings.Cut(before, "://")
		if err != nil && (scheme == "http" || scheme == "clickhouse") && user == "u:" && strings.HasPrefix(after, "@") &&
			strings.Contains(err.Error(), password) {
			t.Errorf("%+v: %v", s, err)
		}
	})
}
