package archive

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// DefaultDatabase is where the tables are unless the settings say otherwise.
const DefaultDatabase = "delivery"

// Settings say which ClickHouse the archive is in.
type Settings struct {
	// URL is http://, https:// or clickhouse:// (the native protocol), with credentials
	// and clickhouse-go's options, such as ?compress=lz4 or ?secure=true.
	URL string `yaml:"url"`
	// Database holds the tables; empty: what the URL's path names, else delivery.
	Database string `yaml:"database"`
	// Cluster is the cluster's name, as its servers know it; empty: a single server.
	Cluster string `yaml:"cluster"`
}

var (
	// databaseNames may stand in SQL without quotes.
	databaseNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	// clusterNames always stand in quotes.
	clusterNames = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
)

// Validate returns what is wrong, without the password.
func (s *Settings) Validate() error {
	_, _, err := s.options()
	return err
}

// options are clickhouse-go's, and the name of the database.
func (s *Settings) options() (*clickhouse.Options, string, error) {
	if s.URL == "" {
		return nil, "", errors.New("url: no address of ClickHouse is given")
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		// Its text quotes the URL, with the password in it.
		return nil, "", errors.New("url: not a URL such as http://host:8123 (it is not shown, for it may hold a password)")
	}
	if u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "clickhouse" {
		return nil, "", fmt.Errorf("url %s: wanted is http://, https:// or clickhouse://, and a host", u.Redacted())
	}
	database := strings.TrimPrefix(u.Path, "/")
	if database != "" && s.Database != "" && database != s.Database {
		return nil, "", fmt.Errorf("the url names the database %q, database says %q", database, s.Database)
	}
	database = cmp.Or(s.Database, database, DefaultDatabase)
	switch {
	case !databaseNames.MatchString(database):
		return nil, "", fmt.Errorf("database %q: letters, digits and underscores, at most 64, and no digit first", database)
	case s.Cluster != "" && !clusterNames.MatchString(s.Cluster):
		return nil, "", fmt.Errorf("cluster %q: letters, digits, underscores, dots and dashes, at most 64", s.Cluster)
	}
	o, err := parse(u)
	if err != nil {
		return nil, "", fmt.Errorf("url %s: %w", u.Redacted(), err)
	}
	o.Auth.Database = database
	return o, database, nil
}

// defaultPorts are by scheme and whether TLS is asked for.
var defaultPorts = map[string]map[bool]string{
	"clickhouse": {false: "9000", true: "9440"},
	"http":       {false: "8123", true: "8123"},
	"https":      {true: "8443"},
}

// parse reads the URL as clickhouse-go does; https means TLS, and ports have defaults.
func parse(u *url.URL) (*clickhouse.Options, error) {
	full, values := *u, u.Query()
	if full.Scheme == "https" {
		values.Set("secure", "true")
	}
	full.RawQuery = values.Encode()
	if full.Port() == "" && !strings.Contains(full.Host, ",") {
		full.Host = net.JoinHostPort(full.Hostname(), defaultPorts[full.Scheme][values.Get("secure") != ""])
	}
	o, err := clickhouse.ParseDSN(full.String())
	if err != nil {
		return nil, withoutURL(err)
	}
	if o.TLS != nil {
		o.TLS.MinVersion = tls.VersionTLS12
	}
	if o.Compression == nil { // measured: it pays even on loopback
		o.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	}
	o.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) { return verifyingTransport{t}, nil }
	o.DialTimeout = cmp.Or(o.DialTimeout, 10*time.Second)
	o.MaxOpenConns = cmp.Or(o.MaxOpenConns, 24)
	o.MaxIdleConns = cmp.Or(o.MaxIdleConns, 8)
	return o, nil
}

// withoutURL drops the URL of an error, which may hold a password.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}
