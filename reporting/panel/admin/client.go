package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/reporting/auth"
)

const (
	timeout       = 5 * time.Second // from dialing to the answer's last byte
	largestAnswer = 1 << 20         // bytes
	largestHeader = 64 << 10        // bytes
	mostOperator  = 64              // characters
	leastKey      = 16              // characters, the gateway's own rule for ADMIN_KEY
	longestWait   = 24 * time.Hour  // that an answer may ask an operator to wait
)

// idleTimeout ends before the gateway closes connections (75 s).
const mostConnections, keptConnections, idleTimeout = 64, 8, 30 * time.Second

// Settings say where the admin API is.
type Settings struct {
	URL string `yaml:"url"` // the gateway's private listener, without a path
}

// Validate names the key; it never shows the value, which could hold a password.
func (s *Settings) Validate() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.ForceQuery || strings.Contains(s.URL, "#") || strings.HasSuffix(s.URL, "/") {
		return errors.New("url: want http:// or https:// and a host, without credentials, query and slash at the end")
	}
	return nil
}

// ErrWrongKey means that the gateway does not accept the panel's ADMIN_KEY.
var ErrWrongKey = errors.New("the gateway refuses the panel's ADMIN_KEY; both need the same one")

// Client calls the gateway's admin API (decisions, "Private APIs"). It is safe for concurrent use.
// It never tries again: after a timeout nobody knows whether the change was made.
type Client struct {
	// Timeout is how long an answer may take, from dialing to its last byte. It is 5 s; tests set more, before the first
	// request.
	Timeout time.Duration

	root string // up to and with the API's version
	key  string
	http *http.Client
}

// NewClient takes a key of leastKey printable ASCII characters or more. Errors never show it.
func NewClient(s Settings, key string) (*Client, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(key) < leastKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("ADMIN_KEY: want at least %d printable ASCII characters without blanks", leastKey)
	}

	return &Client{Timeout: timeout, root: s.URL + "/api/admin/v1", key: key, http: &http.Client{
		// A redirect would carry the key to wherever it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // without Proxy: the listener is private
			MaxConnsPerHost: mostConnections, MaxIdleConnsPerHost: keptConnections, IdleConnTimeout: idleTimeout,
			TLSHandshakeTimeout: timeout, MaxResponseHeaderBytes: largestHeader, DisableCompression: true,
		},
	}}, nil
}

// Path joins and escapes the segments of a path below the API.
func Path(segments ...string) string {
	path := ""
	for _, s := range segments {
		escaped := url.PathEscape(s)
		if s == "." || s == ".." { // a store may have this id; unescaped it is a step
			escaped = strings.ReplaceAll(s, ".", "%2E")
		}
		path += "/" + escaped
	}
	return path
}

// Do sends one request on behalf of an operator and waits at most 5 s. path is escaped
// (Path); body is sent as JSON unless it is nil; the answer's data is decoded into into.
//
// A refusal (4xx) is a *delivery.Error as the gateway answered; a 401 is ErrWrongKey.
// delivery.ErrUnavailable is in the chain when no gateway answers in time, or with 5xx:
// then the change may or may not have been made. When ctx ends first it is ctx's error.
func (c *Client) Do(ctx context.Context, operator, method, path string, body, into any) error {
	bounded, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	status, raw, err := c.send(bounded, operator, method, path, body)
	switch {
	case err != nil && ctx.Err() != nil:
		err = ctx.Err()
	case err == nil:
		err = read(status, raw, into)
	}

	if refusal := (*delivery.Error)(nil); err == nil || errors.As(err, &refusal) {
		return err
	}

	return fmt.Errorf("admin API: %s %s: %w", method, path, err)
}

func (c *Client) send(ctx context.Context, operator, method, path string, body any) (status int, raw []byte, err error) {
	if !strings.HasPrefix(path, "/") {
		return 0, nil, errors.New("the path does not begin with a slash")
	}
	if !printable(operator) {
		return 0, nil, fmt.Errorf("the operator's name must be 1 to %d printable characters", mostOperator)
	}

	header := http.Header{"Accept": {"application/json"}, "Authorization": {"Bearer " + c.key}, "X-Operator": {operator},
		"X-Operator-Address": {auth.IdentityOf(ctx).Address}, "X-Request-Id": {auth.NewRequestID()}} // both for the audit stream
	content := new(bytes.Buffer)
	if body != nil {
		if err := json.NewEncoder(content).Encode(body); err != nil {
			return 0, nil, fmt.Errorf("encode the body: %w", err)
		}
		header.Set("Content-Type", "application/json")
	}

	req, err := http.NewRequestWithContext(ctx, method, c.root+path, content)
	if err != nil {
		return 0, nil, err
	}

	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("%w: no gateway answers: %w", delivery.ErrUnavailable, err)
	}
	defer resp.Body.Close()

	raw, err = io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	if err != nil {
		return 0, nil, fmt.Errorf("%w: the gateway's answer broke off: %w", delivery.ErrUnavailable, err)
	}

	return resp.StatusCode, raw, nil
}

func printable(operator string) bool {
	n := utf8.RuneCountInString(operator)
	return n >= 1 && n <= mostOperator && utf8.ValidString(operator) && strings.TrimSpace(operator) == operator &&
		!strings.ContainsFunc(operator, func(r rune) bool { return !unicode.IsPrint(r) })
}

// refusalData is what the client reads of a refusal's data (spec, "Response envelope").
type refusalData struct {
	ErrorCode         delivery.Code         `json:"errorCode"`
	RetryAfterSeconds int64                 `json:"retryAfterSeconds"`
	Fields            []delivery.FieldError `json:"fields"`
	RequestID         string                `json:"requestId"`
}

// read decodes the data of a success, and makes an error of everything else.
func read(status int, raw []byte, into any) error {
	var e struct {
		Success *bool           `json:"success"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}

	var d refusalData
	err := json.Unmarshal(raw, &e)
	success := status >= 200 && status < 300
	switch {
	case status >= 500:
		_ = json.Unmarshal(e.Data, &d) // the gateway's log says more under the request id, if there is one
		return fmt.Errorf("%w: the gateway answered %d, request id %.64q", delivery.ErrUnavailable, status, d.RequestID)
	case status == http.StatusUnauthorized:
		return ErrWrongKey
	case len(raw) > largestAnswer:
		err = errors.New("an answer of more than 1 MB")
	case err != nil:
		err = fmt.Errorf("no envelope of the gateway's: %w", err)
	case e.Success == nil || len(e.Data) == 0:
		err = errors.New("no envelope of the gateway's")
	case *e.Success != success || !success && status < 400:
		err = errors.New("an envelope that contradicts the status")
	case !success:
		err = json.Unmarshal(e.Data, &d)
		if err == nil && d.ErrorCode != "" {
			wait := min(max(d.RetryAfterSeconds, 0), int64(longestWait/time.Second))
			return &delivery.Error{Code: d.ErrorCode, Message: e.Message, Fields: d.Fields, RetryAfter: time.Duration(wait) * time.Second}
		}
		err = cmp.Or(err, errors.New("a refusal without errorCode"))
	case into != nil:
		err = json.Unmarshal(e.Data, into)
	}

	switch {
	case err == nil:
		return nil
	case status < 400 || json.Valid(raw): // it could hold a secret that the gateway has just issued
		return fmt.Errorf("answered %d with %d bytes that cannot be used: %w", status, len(raw), err)
	}

	return fmt.Errorf("answered %d with %.200q: %w", status, raw, err) // maybe a proxy's page
}

// FinanceReceiver is where finance's own system gets its webhooks; the zero value: nowhere.
type FinanceReceiver struct {
	URL     string                   `json:"url"`
	State   partitions.EndpointState `json:"status"`
	Waiting int64                    `json:"waitingEvents"`
}

const (
	financeWebhook = "/finance/webhook"
	reader         = "reporting" // is who only reads
)

// FinanceWebhook reads finance's receiver. Errors are Do's.
func (c *Client) FinanceWebhook(ctx context.Context) (r FinanceReceiver, err error) {
	err = c.Do(ctx, reader, http.MethodGet, financeWebhook, nil, &r)
	if delivery.CodeOf(err) == delivery.CodeWebhookNotConfigured {
		return FinanceReceiver{}, nil
	}
	return r, err
}

// SetFinanceWebhook registers finance's receiver, or moves it with what waits. The secret is there
// only when it was issued now. A URL that is not https and public is VALIDATION_FAILED; errors are Do's.
func (c *Client) SetFinanceWebhook(ctx context.Context, operator, url string) (secret string, err error) {
	var made issued
	err = c.Do(ctx, operator, http.MethodPut, financeWebhook, map[string]string{"url": url}, &made)
	return made.Secret, err
}

// RemoveFinanceWebhook removes finance's receiver and its secrets; what waits is recorded as not
// sent. WEBHOOK_NOT_CONFIGURED; other errors are Do's.
func (c *Client) RemoveFinanceWebhook(ctx context.Context, operator string) error {
	return c.Do(ctx, operator, http.MethodDelete, financeWebhook, nil, nil)
}

// ReportAvailable has finance's system told that files were delivered. It may be called again after any
// error, and whenever the caller does not know whether it was: a report's ID is one event. While finance
// has no receiver nothing is queued: WEBHOOK_NOT_CONFIGURED; other errors are Do's.
func (c *Client) ReportAvailable(ctx context.Context, operator string, r *delivery.AvailableReport) error {
	body := json.RawMessage(delivery.AppendReportAvailable(nil, r))
	return c.Do(ctx, operator, http.MethodPost, "/finance/reports/available", body, nil)
}
