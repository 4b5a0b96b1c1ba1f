package main

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	chcompress "github.com/ClickHouse/ch-go/compress"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
	"github.com/google/uuid"

	"vendorapi/internal/devclickhouse/libchdb"
)

type front struct {
	open     func() (*libchdb.Conn, error) // a session of its own
	identity identity
	// keeper keeps the engine open between requests, since closing the last
	// connection stops it, and sends the KILL QUERY, since a statement's own
	// connection is busy.
	keeper *libchdb.Conn
	turn   sync.Mutex    // a connection runs one statement at a time
	slots  chan struct{} // one element per running statement
	key    string        // needed for changes; empty: nothing is
	log    *slog.Logger
	active sync.WaitGroup
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.active.Add(1)
	defer f.active.Done()
	if reason := foreign(r); reason != "" {
		http.Error(w, reason, http.StatusForbidden)
		return
	}

	ping := r.URL.Path == "/ping" || r.URL.Path == "/replicas_status"
	if !ping && r.URL.Path != "/" && r.URL.Path != "" {
		http.Error(w, "There is no handle "+r.URL.Path, http.StatusNotFound)
		return
	}

	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !reads && (ping || r.Method != http.MethodPost) {
		http.Error(w, r.Method+" is not allowed", http.StatusMethodNotAllowed)
		return
	}

	if ping || reads && r.URL.RawQuery == "" {
		_, _ = io.WriteString(w, "Ok.\n") // who has gone needs no answer
		return
	}

	if err := f.query(w, r); err != nil {
		refuse(w, asException(err))
	}
}

// foreign says why a request is none of a trusted caller's: a page in a browser can
// send requests to loopback, directly or through a name that it points there, and
// reading needs no password.
func foreign(r *http.Request) string {
	if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Origin") != "" || site == "cross-site" || site == "same-site" {
		return "requests of web pages are not allowed"
	}

	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}

	if host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
		return "the Host header must be an address or localhost"
	}

	return ""
}

// maxStatement bounds a statement's text, in bytes. Data of an INSERT does not count.
const maxStatement = 8 << 20

// query answers one statement. An error means that nothing was answered yet.
func (f *front) query(w http.ResponseWriter, r *http.Request) error {
	q, err := parseRequest(r)
	if err == nil {
		err = q.authorize(f.key)
	}

	if err != nil {
		return err
	}

	h := w.Header()
	h.Set("X-ClickHouse-Query-Id", q.id)
	h.Set("X-ClickHouse-Server-Display-Name", f.identity.name)
	h.Set("X-ClickHouse-Timezone", f.identity.timezone)

	var body io.Reader = r.Body
	if q.decompress {
		body = blockReader{chcompress.NewReader(body)}
	}

	// The statement is read before a slot is taken: a slow client delays nobody. What
	// the window does not hold is data of an INSERT.
	window, err := io.ReadAll(io.LimitReader(body, maxStatement+1))
	if err != nil {
		return unreadable(err)
	}

	if len(window) <= maxStatement {
		body = http.NoBody // a reader of blocks must not be asked again after its end
	}

	text := q.query
	if text != "" && len(window) > 0 {
		text += "\n" // as ClickHouse joins them
	}

	text += string(window)
	if q.wantRevision != "" && q.format == "Native" && strings.TrimSpace(text) == helloQuery {
		return f.answerHello(w, q)
	}

	select {
	case f.slots <- struct{}{}:
	case <-r.Context().Done():
		return r.Context().Err()
	}

	defer func() { <-f.slots }()

	conn, err := f.open()
	if err != nil {
		return err
	}
	defer conn.Close()

	mark, finished := f.watch(r.Context(), q.id)
	defer finished()

	return (&execution{conn: conn, q: q, w: w, mark: mark}).run(text, body)
}

// blockReader reads ClickHouse's compressed blocks; their end is a bare io.EOF.
type blockReader struct{ *chcompress.Reader }

func (b blockReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.EOF
	}
	return n, err
}

// unreadable makes an exception of a body that ended early or is damaged.
func unreadable(err error) error {
	if e, ok := errors.AsType[*libchdb.Exception](err); ok {
		return e
	}
	return libchdb.NewException(codeCannotReadAllData, "CANNOT_READ_ALL_DATA", "The request's body cannot be read: %v", err)
}

type request struct {
	query    string // of the URL; the body's text follows it
	database string
	format   string // when the statement has no FORMAT
	id       string // the query's, in the answer and as log_comment
	settings map[string]string
	params   libchdb.Params
	readOnly bool // GET and HEAD
	keyless  bool // sent without the key that changes need

	compress, decompress bool // the answer, the body in ClickHouse's LZ4 blocks
	wait                 bool // answer only when the whole result is there
	user, secret         string
	wantRevision         string // client_protocol_version, which only the hello minds
}

// settingName is what may stand in a SET statement.
var (
	settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	formatName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
)

// parseRequest reads the URL and the headers. What is no parameter of the HTTP
// interface is a setting, as ClickHouse has it.
func parseRequest(r *http.Request) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, syntaxError("Malformed query string: %v", err)
	}

	q := &request{
		settings: map[string]string{},
		params:   libchdb.Params{},
		database: r.Header.Get("X-ClickHouse-Database"),
		format:   r.Header.Get("X-ClickHouse-Format"),
		id:       uuid.NewString(),
		readOnly: r.Method != http.MethodPost,
	}

	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, notImplemented("Content-Encoding %s", coding)
	}

	q.user, q.secret, _ = r.BasicAuth()
	if user := r.Header.Get("X-ClickHouse-User"); user != "" {
		q.user, q.secret = user, r.Header.Get("X-ClickHouse-Key")
	}

	for name, all := range values {
		if err := q.take(name, all[len(all)-1]); err != nil {
			return nil, err
		}
	}

	if q.format == "" {
		q.format = "TabSeparated"
	}

	if !formatName.MatchString(q.format) {
		return nil, libchdb.NewException(codeUnknownFormat, "UNKNOWN_FORMAT", "Unknown format %s", q.format)
	}

	return q, nil
}

func (q *request) take(name, value string) error {
	if param, ok := strings.CutPrefix(name, "param_"); ok {
		q.params[param] = value
		return nil
	}

	texts := map[string]*string{
		"query": &q.query, "database": &q.database, "default_format": &q.format, "user": &q.user, "password": &q.secret,
		"query_id": &q.id, "client_protocol_version": &q.wantRevision,
	}

	flags := map[string]*bool{"compress": &q.compress, "decompress": &q.decompress, "wait_end_of_query": &q.wait}
	switch {
	case texts[name] != nil:
		*texts[name] = value
	case flags[name] != nil:
		*flags[name] = value == "1"
	case name == "network_compression_method":
		if value != "LZ4" {
			return notImplemented("network_compression_method %s", value)
		}
	case !settingName.MatchString(name):
		return libchdb.NewException(codeUnknownSetting, "UNKNOWN_SETTING", "Unknown setting '%s'", name)
	default:
		q.settings[name] = value
	}

	return nil
}

// authorize checks the user and the password; key is the one that changes need, empty
// when they need none.
func (q *request) authorize(key string) error {
	right := key != "" && subtle.ConstantTimeCompare([]byte(q.secret), []byte(key)) == 1
	if q.user != "" && q.user != "default" || q.secret != "" && !right {
		return libchdb.NewException(codeAuthentication, "AUTHENTICATION_FAILED",
			"%s: Authentication failed: the embedded engine has one user, default, whose password is the engine's key; reading needs none", q.user)
	}
	q.keyless = key != "" && !right
	return nil
}

// setStatement applies the request's settings to its session. The client's id of the
// query becomes its log_comment, where system.processes shows it.
func (q *request) setStatement() string {
	settings := map[string]string{"log_comment": q.id}
	maps.Copy(settings, q.settings)
	// An insert is answered when it is stored, never before.
	settings["async_insert"] = "0"
	// The library reads a lone expression as a SELECT, by which `exit` is a valid
	// statement. A server does not.
	settings["implicit_select"] = "0"
	var assignments []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		assignments = append(assignments, fmt.Sprintf("%s = '%s'", name, escape(settings[name], `'`)))
	}

	return "SET " + strings.Join(assignments, ", ")
}

// escape makes a text safe between two of the given quotes.
func escape(text, quote string) string {
	return strings.NewReplacer(`\`, `\\`, quote, `\`+quote).Replace(text)
}

// helloQuery is the first thing that clickhouse-go asks of a server.
const helloQuery = "SELECT displayName(), version(), revision(), timezone()"

type identity struct {
	name, version, timezone string
}

func readIdentity(conn *libchdb.Conn) (identity, error) {
	row, err := conn.Query("SELECT 'embedded', version(), timezone()", "TSV", nil)
	if err != nil {
		return identity{}, fmt.Errorf("ask the engine who it is: %w", err)
	}

	fields := strings.Split(strings.TrimRight(string(row), "\n"), "\t")
	if len(fields) != 3 {
		return identity{}, fmt.Errorf("the engine says of itself: %q", row)
	}
	return identity{name: fields[0], version: fields[1], timezone: fields[2]}, nil
}

// answerHello answers in the engine's place.
//
// clickhouse-go reads every block in the layout of a protocol revision: that of
// its own newest one until the hello, afterwards the one that the hello says.
// The library writes revision 0 and has no setting for another. So the hello is
// answered in the client's revision and says revision 0, after which the
// library's blocks are what the client expects, byte for byte. Inserts are at
// revision 0 in either case.
func (f *front) answerHello(w http.ResponseWriter, q *request) error {
	revision, err := strconv.ParseUint(q.wantRevision, 10, 32)
	if err != nil {
		return syntaxError("client_protocol_version is %q", q.wantRevision)
	}

	block := proto.NewBlock()
	var buffer chproto.Buffer
	err = errors.Join(
		block.AddColumn("displayName()", "String"), block.AddColumn("version()", "String"),
		block.AddColumn("revision()", "UInt32"), block.AddColumn("timezone()", "String"),
		block.Append(f.identity.name, f.identity.version, uint32(0), f.identity.timezone),
		block.Encode(&buffer, revision))
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}

	a := newAnswer(w, q, "Native")
	_ = a.write(buffer.Buf) // it is held back
	_ = a.flush()           // a client that has gone needs none

	return nil
}
