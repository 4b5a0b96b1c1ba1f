// Package archive is finance's copy of the ledger in ClickHouse: one row per
// order and version, one per status reached, one per webhook attempt.
//
// It holds the schema (schema/NNNN_*.sql, views/*.sql) for a single server and for a cluster. A batch
// that is stored twice, late or out of order changes nothing: the order's own version
// says which row is the latest.
package archive

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // the driver looks up zones of columns and servers; not every machine has them

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/journal"
)

// Archive is a ClickHouse database. It is safe for concurrent use.
//
// An error wraps delivery.ErrUnavailable when the call may succeed later; the end of a
// context is the context's own error; the rest is a defect of the caller or the schema.
type Archive struct {
	layout
	address string // for errors: hosts, no credentials
	conn    driver.Conn
	// server is connected to no database: this one may not exist yet.
	server driver.Conn

	// books check the journal's signatures, and head reads the journal's head from Redis; nil: Redis is
	// not asked (UseHead).
	books journal.Keys
	head  *headReader

	// verified is the log that Journal has verified last.
	verified *atomic.Pointer[verifiedLog]

	// seenCertificate is WatchCertificate's; nil: nobody watches.
	seenCertificate func(ends time.Time)

	// isOurs is ForPeople's; nil: the archive is a program's own.
	isOurs func() bool
}

// Open reads the settings. It connects to nothing.
func Open(s Settings) (*Archive, error) {
	options, err := s.options()
	if err != nil {
		return nil, err
	}

	ofServer := *options
	ofServer.Auth.Database, ofServer.MaxOpenConns, ofServer.MaxIdleConns = "", 2, 1
	conn, err := clickhouse.Open(options)
	server, other := clickhouse.Open(&ofServer)
	if err := errors.Join(err, other); err != nil {
		return nil, fmt.Errorf("clickhouse: %w", err)
	}

	a := &Archive{layout: layout{options.Auth.Database, s.Cluster}, address: strings.Join(options.Addr, ","), conn: conn, server: server, books: s.BooksKeys, verified: &atomic.Pointer[verifiedLog]{}}
	for _, o := range []*clickhouse.Options{options, &ofServer} {
		if o.TLS != nil {
			o.TLS.VerifyConnection = a.noteCertificate
		}
	}

	return a, nil
}

// noteCertificate tells who watches of the certificate of a new connection.
func (a *Archive) noteCertificate(state tls.ConnectionState) error {
	if a.seenCertificate != nil {
		a.seenCertificate(state.PeerCertificates[0].NotAfter)
	}
	return nil
}

// WatchCertificate has seen called with the end of the certificate that ClickHouse shows, for
// each new connection with TLS. It is called before anything is asked of the archive.
func (a *Archive) WatchCertificate(seen func(ends time.Time)) { a.seenCertificate = seen }

// Close gives the connections back. No call may be in progress.
func (a *Archive) Close() error { return errors.Join(a.conn.Close(), a.server.Close()) }

// ForPeople returns the same archive for those who look at it. Nothing is read before isOurs answers
// true: until then it may be another ledger's database. What an administrator of ClickHouse has to fix
// counts as unavailable, too: a wrong password, missing rights, missing tables.
func (a *Archive) ForPeople(isOurs func() bool) *Archive {
	shown := *a
	shown.isOurs = isOurs
	return &shown
}

// checkOurs fails with delivery.ErrUnavailable before the archive may be shown to people.
func (a *Archive) checkOurs() error {
	if a.isOurs == nil || a.isOurs() {
		return nil
	}
	return &unavailable{fmt.Errorf("clickhouse at %s: it is not known yet whose database %s is", a.address, a.database)}
}

// Ping reports whether ClickHouse answers, and accepts the credentials.
func (a *Archive) Ping(ctx context.Context) error {
	if err := a.fault(ctx, "ping", a.server.Ping(ctx)); err != nil {
		return err
	}
	return a.checkOurs()
}

const (
	// maxQuerySize leaves room for the batches of many years of books, named twice, and for MaxPlaces places, named
	// six times.
	maxQuerySize = 8 << 20

	// maxElements bounds what a statement is made of; each place and each batch that it names is one or more.
	maxElements = 1_000_000
)

// reading are the settings of every SELECT. FINAL need not look across partitions: an
// order's never changes.
var reading = clickhouse.Settings{
	"final": 1,
	"do_not_merge_across_partitions_select_final": 1,
	"max_query_size":   maxQuerySize,
	"max_ast_elements": maxElements,
	"readonly":         2, // nothing but settings may be changed
	// A server that knows the reader has gone stops, but only with this and the
	// one before.
	"cancel_http_readonly_queries_on_client_close": 1,
}

// readingSettings are those of a SELECT. A server of a cluster that lacks a row of the books, which was
// confirmed by most of the servers that have them, fails instead of answering without it (see
// storingSettings).
func (l layout) readingSettings() clickhouse.Settings {
	if l.cluster == "" {
		return reading
	}

	settings := maps.Clone(reading)
	settings["select_sequential_consistency"] = 1

	// A replica that is far behind would hide what was stored last.
	settings["max_replica_delay_for_distributed_queries"] = 300
	settings["fallback_to_stale_replicas_for_distributed_queries"] = 0

	return settings
}

// Each calls take, which scans it, for every row of a query. take's first error ends the
// query. args are clickhouse.Named values for parameters such as {day:Date}. Tables are
// read with FINAL.
func (a *Archive) Each(ctx context.Context, query string, take func(driver.Rows) error, args ...any) error {
	if err := a.checkOurs(); err != nil {
		return err
	}

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := a.conn.Query(clickhouse.Context(running, clickhouse.WithSettings(a.readingSettings())), query, args...)
	if err != nil {
		return a.fault(ctx, "select", err)
	}
	defer func() {
		cancel() // first: else closing would read to the end
		_ = rows.Close()
	}()

	for rows.Next() {
		if err := take(rows); err != nil {
			return err
		}
	}

	return cmp.Or(a.fault(ctx, "select", rows.Err()), ctx.Err())
}

func (a *Archive) exec(ctx context.Context, statement string, args ...any) error {
	return a.execOn(ctx, a.conn, statement, args...)
}

// execOn names the statement in an error by its first words.
func (a *Archive) execOn(ctx context.Context, conn driver.Conn, statement string, args ...any) error {
	words := strings.Fields(statement)
	return a.fault(ctx, strings.Join(words[:min(len(words), 6)], " "), conn.Exec(ctx, statement, args...))
}

// DefaultDatabase is where the tables are unless the settings say otherwise.
const DefaultDatabase = "delivery"

// Settings say which ClickHouse the archive is in; configs/reporting.yaml explains them.
type Settings struct {
	URL      string `yaml:"url"`
	ReadURL  string `yaml:"read_url"` // empty: URL
	Database string `yaml:"database"`
	Cluster  string `yaml:"cluster"`

	// BooksKeys check the log of the books; without them nothing is read that depends on it, once
	// a month is closed.
	BooksKeys journal.Keys `yaml:"-"`
}

var (
	databaseNames = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)      // may stand in SQL without quotes
	clusterNames  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`) // always stand in quotes
)

// Validate returns what is wrong, without the passwords.
func (s *Settings) Validate() error {
	if _, err := s.options(); err != nil || s.ReadURL == "" {
		return err
	}

	_, err := s.forReading().options()
	if err != nil {
		return fmt.Errorf("read_url: %w", err)
	}
	return nil
}

// ForReading returns the settings with which a program only reads: those of a user who may do no
// more, if ReadURL names one. The database is the same. The settings are valid.
func (s *Settings) ForReading() Settings {
	if s.ReadURL == "" {
		return *s
	}
	return *s.forReading()
}

// forReading returns the same settings with ReadURL in the place of URL.
func (s *Settings) forReading() *Settings {
	reading := *s
	reading.URL, reading.ReadURL = s.ReadURL, ""
	if own, err := s.options(); err == nil {
		reading.Database = own.Auth.Database
	}
	return &reading
}

// options are clickhouse-go's.
func (s *Settings) options() (_ *clickhouse.Options, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("clickhouse: %w", err)
		}
	}()

	if s.URL == "" {
		return nil, errors.New("url: no address of ClickHouse is given")
	}

	u, err := url.Parse(s.URL)
	if err != nil { // its text quotes the URL, with the password in it
		return nil, errors.New("url: not a URL such as http://host:8123 (it is not shown, for it may hold a password)")
	}

	databaseOfURL := strings.TrimPrefix(u.Path, "/")
	database := cmp.Or(s.Database, databaseOfURL, DefaultDatabase)
	isKnownScheme := u.Scheme == "http" || u.Scheme == "https" || u.Scheme == "clickhouse"
	switch {
	case u.Host == "" || !isKnownScheme:
		return nil, fmt.Errorf("url %s: wanted is http://, https:// or clickhouse://, and a host", u.Redacted())
	case databaseOfURL != "" && databaseOfURL != database:
		return nil, fmt.Errorf("the url names the database %q, database says %q", databaseOfURL, s.Database)
	case !databaseNames.MatchString(database):
		return nil, fmt.Errorf("database %q: letters, digits and underscores, at most 64, and no digit first", database)
	case s.Cluster != "" && !clusterNames.MatchString(s.Cluster):
		return nil, fmt.Errorf("cluster %q: letters, digits, underscores, dots and dashes, at most 64", s.Cluster)
	}

	o, err := clickhouse.ParseDSN(dataSourceName(u))
	if err != nil {
		return nil, fmt.Errorf("url %s: %w", u.Redacted(), withoutURL(err))
	}

	if o.TLS != nil {
		o.TLS.MinVersion = tls.VersionTLS12
	}

	if o.Compression == nil { // measured: it pays even on loopback
		o.Compression = &clickhouse.Compression{Method: clickhouse.CompressionLZ4}
	}

	o.TransportFunc = func(t *http.Transport) (http.RoundTripper, error) { return verifyingTransport{t}, nil }
	o.DialTimeout = cmp.Or(o.DialTimeout, defaultDialTimeout)
	o.MaxOpenConns = cmp.Or(o.MaxOpenConns, defaultOpenConns)
	o.MaxIdleConns = cmp.Or(o.MaxIdleConns, defaultIdleConns)
	o.Auth.Database = database

	return o, nil
}

// What applies to connections unless the URL says otherwise.
const (
	defaultDialTimeout = 10 * time.Second
	defaultOpenConns   = 24
	defaultIdleConns   = 8
)

// dataSourceName returns the URL in clickhouse-go's own form, in which https is the parameter
// secure, and with a port.
func dataSourceName(u *url.URL) string {
	values := u.Query()
	if u.Scheme == "https" {
		values.Set("secure", "true")
	}

	full := *u
	full.RawQuery = values.Encode()
	isOneHost := !strings.Contains(u.Host, ",")
	if u.Port() == "" && isOneHost {
		usesTLS := values.Get("secure") != ""
		full.Host = net.JoinHostPort(u.Hostname(), defaultPorts[u.Scheme][usesTLS])
	}

	return full.String()
}

var defaultPorts = map[string]map[bool]string{
	"clickhouse": {false: "9000", true: "9440"},
	"http":       {false: "8123", true: "8123"},
	"https":      {true: "8443"},
}

// withoutURL drops the URL of an error, which may hold a password.
func withoutURL(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

// unavailable marks an error that may pass.
type unavailable struct{ cause error }

func (u *unavailable) Error() string   { return u.cause.Error() }
func (u *unavailable) Unwrap() []error { return []error{delivery.ErrUnavailable, u.cause} }

// authenticationErrors are exceptions about who asks.
var authenticationErrors = []proto.Error{
	proto.ErrAuthenticationFailed, proto.ErrUnknownUser, proto.ErrWrongPassword, proto.ErrRequiredPassword,
}

// administrationErrors are what an administrator of ClickHouse has to fix.
var administrationErrors = append([]proto.Error{
	proto.ErrUnknownDatabase, proto.ErrUnknownTable, proto.ErrReadonly, proto.ErrDatabaseAccessDenied, proto.ErrAccessDenied,
}, authenticationErrors...)

// permanentErrors do not pass: the statement or the schema is wrong, or the user may not.
var permanentErrors = append([]proto.Error{
	proto.ErrSyntaxError, proto.ErrNotImplemented, proto.ErrReadonly,
	proto.ErrUnknownSetting, proto.ErrUnknownFormat, proto.ErrUnknownFunction, proto.ErrUnknownDatabase, proto.ErrUnknownTable,
	proto.ErrUnknownIdentifier, proto.ErrNoSuchColumnInTable, proto.ErrNotFoundColumnInBlock,
	proto.ErrNumberOfColumnsDoesntMatch, proto.ErrIllegalColumn,
	proto.ErrNumberOfArgumentsDoesntMatch, proto.ErrIllegalTypeOfArgument, proto.ErrBadArguments, proto.ErrArgumentOutOfBound,
	proto.ErrUnknownQueryParameter, proto.ErrBadQueryParameter,
	proto.ErrTypeMismatch, proto.ErrNoCommonType, proto.ErrCannotConvertType,
	proto.ErrDecimalOverflow, proto.ErrCannotInsertNullInOrdinaryColumn,
	proto.ErrCannotParseText, proto.ErrCannotParseNumber, proto.ErrCannotParseDate, proto.ErrCannotParseDatetime,
	proto.ErrCannotParseQuotedString, proto.ErrCannotParseInputAssertionFailed,
	proto.ErrDatabaseAccessDenied, proto.ErrAccessDenied,
}, authenticationErrors...)

// fault says what went wrong in doing what, and whether it may pass.
func (a *Archive) fault(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}

	at := "clickhouse at " + a.address
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%s, %s: %w", at, doing, ended)
	}

	err = delivery.Foreign(withoutURL(err))
	var code proto.Error
	if exception := (*clickhouse.Exception)(nil); errors.As(err, &exception) {
		code = proto.Error(exception.Code)
	}

	switch {
	case errors.Is(err, context.DeadlineExceeded): // a limit of the driver's own
		err = fmt.Errorf("%s, %s: no answer in time: %w", at, doing, err)
	case slices.Contains(authenticationErrors, code):
		err = fmt.Errorf("%s refuses the user or the password: %w", at, err)
	case code == proto.ErrUnknownDatabase:
		err = fmt.Errorf("%s has no database %s (`reporting migrate` makes it): %w", at, a.database, err)
	case code == proto.ErrUnknownTable:
		err = fmt.Errorf("%s, %s (`reporting migrate` makes the tables): %w", at, doing, err)
	default:
		err = fmt.Errorf("%s, %s: %w", at, doing, err)
	}

	isExcused := a.isOurs != nil && slices.Contains(administrationErrors, code)
	if slices.Contains(permanentErrors, code) && !isExcused {
		return err
	}

	return &unavailable{err}
}

// verifyingTransport passes on only ClickHouse's answers. The driver takes any 200 for
// success, a proxy's page of maintenance, too: rows would count as stored that nobody has.
type verifyingTransport struct{ http.RoundTripper }

var errNotClickHouse = errors.New("something answered that is not ClickHouse")

func (t verifyingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}

	// Some proxies keep only one of the two.
	if resp.Header.Get("X-ClickHouse-Query-Id") != "" || resp.Header.Get("X-ClickHouse-Server-Display-Name") != "" {
		return resp, nil
	}
	return nil, errors.Join(fmt.Errorf("%w: %s, %s", errNotClickHouse, resp.Status, resp.Header.Get("Content-Type")), resp.Body.Close())
}
