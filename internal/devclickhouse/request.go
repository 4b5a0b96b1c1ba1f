package devclickhouse

import (
	"crypto/subtle"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"vendorapi/internal/devclickhouse/libchdb"
)

// request is what an HTTP request asks for, besides its body.
type request struct {
	query    string // of the URL; the body's text follows it
	database string
	format   string // when the statement has no FORMAT
	id       string // names the query in system.processes (as log_comment) and in the answer
	settings map[string]string
	params   libchdb.Params
	readOnly bool // GET and HEAD
	keyless  bool // sent without the key that changes need

	compress     bool   // answer in ClickHouse's compressed blocks
	method       string // of those blocks, in capitals
	decompress   bool   // the body comes in them
	wait         bool   // answer only when the whole result is there
	httpCoding   string // Content-Encoding of the answer; empty: none
	user, secret string
	wantRevision string // client_protocol_version, which only the hello minds
}

// settingName is what may stand in a SET statement. Dots belong to custom and
// MergeTree-style settings.
var (
	settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	formatName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
	queryID     = regexp.MustCompile(`^[\x20-\x7e]{1,128}$`)
)

// ignored are parameters of ClickHouse's HTTP interface that mean nothing here:
// how the client's side is compressed or buffered, and quotas.
var ignored = []string{
	"buffer_size", "quota_key", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
	"http_zlib_compression_level", "network_zstd_compression_level", "add_http_cors_header",
	"http_write_exception_in_output_format", "stacktrace",
}

// refused are parameters that promise something the front does not do.
var refused = map[string]string{
	"session_id":      "sessions are not supported: each request has a session of its own",
	"session_check":   "sessions are not supported: each request has a session of its own",
	"session_timeout": "sessions are not supported: each request has a session of its own",
	"role":            "the embedded engine has no roles",
}

// parseRequest reads the URL and the headers. What is no parameter of the HTTP
// interface is a setting, as ClickHouse has it.
func parseRequest(r *http.Request) (*request, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, syntaxError("Malformed query string: %v", err)
	}
	q := &request{
		settings:   map[string]string{},
		params:     libchdb.Params{},
		database:   r.Header.Get("X-ClickHouse-Database"),
		format:     r.Header.Get("X-ClickHouse-Format"),
		readOnly:   r.Method != http.MethodPost,
		httpCoding: chooseCoding(r.Header.Get("Accept-Encoding")),
		method:     "LZ4",
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
	return q, q.complete()
}

func (q *request) take(name, value string) error {
	if reason, ok := refused[name]; ok {
		return notImplemented("%s: %s", name, reason)
	}
	if param, ok := strings.CutPrefix(name, "param_"); ok {
		q.params[param] = value
		return nil
	}
	switch name {
	case "query":
		q.query = value
	case "database":
		q.database = value
	case "default_format":
		q.format = value
	case "user":
		q.user = value
	case "password":
		q.secret = value
	case "query_id":
		q.id = value
	case "client_protocol_version":
		q.wantRevision = value
	case "compress":
		q.compress = isTrue(value)
	case "decompress":
		q.decompress = isTrue(value)
	case "network_compression_method":
		q.method = strings.ToUpper(value)
	case "wait_end_of_query":
		q.wait = isTrue(value)
	case "enable_http_compression":
		if !isTrue(value) {
			q.httpCoding = ""
		}
	default:
		return q.set(name, value)
	}
	return nil
}

func (q *request) set(name, value string) error {
	if slices.Contains(ignored, name) {
		return nil
	}
	if !settingName.MatchString(name) {
		return libchdb.NewException(codeUnknownSetting, "UNKNOWN_SETTING", "Unknown setting '%s'", name)
	}
	q.settings[name] = value
	return nil
}

// authorize judges the user and the password; key is the one that changes need,
// empty when they need none.
func (q *request) authorize(key string) error {
	known := q.user == "" || q.user == "default"
	right := key != "" && subtle.ConstantTimeCompare([]byte(q.secret), []byte(key)) == 1
	if !known || q.secret != "" && !right {
		return libchdb.NewException(codeAuthentication, "AUTHENTICATION_FAILED",
			"%s: Authentication failed: the embedded engine has one user, default, whose password is the engine's key; reading needs none", q.user)
	}
	q.keyless = key != "" && !right
	return nil
}

func (q *request) complete() error {
	if q.format == "" {
		q.format = "TabSeparated"
	}
	if !formatName.MatchString(q.format) {
		return libchdb.NewException(codeUnknownFormat, "UNKNOWN_FORMAT", "Unknown format %s", q.format)
	}
	if q.id == "" {
		q.id = uuid.NewString()
	}
	if !queryID.MatchString(q.id) {
		return syntaxError("query_id must have 1 to 128 visible ASCII characters")
	}
	if q.compress {
		q.httpCoding = "" // one of the two is enough
	}
	return nil
}

// ownSettings are the front's; a request cannot change them.
var ownSettings = map[string]string{
	// An insert is answered when it is stored, never before.
	"async_insert": "0",
	// The library reads a lone expression as a SELECT, by which `exit` is a
	// valid statement. A server does not.
	"implicit_select": "0",
}

// setStatement applies the request's settings to its session. The client's id
// of the query becomes its log_comment, where system.processes shows it: the
// library has no other place for it.
func (q *request) setStatement() string {
	settings := map[string]string{"log_comment": q.id}
	maps.Copy(settings, q.settings)
	maps.Copy(settings, ownSettings)
	assignments := make([]string, 0, len(settings))
	for name, value := range settings {
		assignments = append(assignments, name+" = "+quote(value))
	}
	return "SET " + strings.Join(assignments, ", ")
}

func isTrue(value string) bool { return value == "1" || strings.EqualFold(value, "true") }

// quote makes a string literal.
func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// quoteName makes a quoted identifier.
func quoteName(s string) string {
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(s) + "`"
}
