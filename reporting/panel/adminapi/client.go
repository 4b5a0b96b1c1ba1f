package adminapi

import (
	"bytes"
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
)

// Bounds of one exchange.
const (
	timeout       = 5 * time.Second // from dialing to the answer's last byte
	largestAnswer = 1 << 20         // bytes
	largestHeader = 64 << 10        // bytes
	mostOperator  = 64              // characters
)

// Connections to the gateway: as many people as work at once, and given up well
// before the gateway closes them (75 s), so that none is used in vain.
const (
	mostConnections = 64
	keptConnections = 8
	idleTimeout     = 30 * time.Second
)

// leastKey is the gateway's own rule for ADMIN_KEY.
const leastKey = 16

// ErrWrongKey tells that the gateway does not take the panel's ADMIN_KEY. It is
// the panel's fault, not the operator's.
var ErrWrongKey = errors.New("the gateway refuses the panel's ADMIN_KEY; both need the same one")

// Client calls the admin API. It is safe for concurrent use.
type Client struct {
	root string // up to and with the API's version
	key  string
	http *http.Client
}

// New makes a client with the admin key, which has 16 printable ASCII characters
// or more. It sends nothing yet. Errors never show the key.
func New(s Settings, key string) (*Client, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if len(key) < leastKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("ADMIN_KEY: want at least %d printable ASCII characters without blanks", leastKey)
	}
	return &Client{root: s.URL + "/api/admin/v1", key: key, http: &http.Client{
		// A redirect would carry the key to wherever it points.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // Proxy stays nil: the private listener is no proxy's business
			MaxConnsPerHost: mostConnections, MaxIdleConnsPerHost: keptConnections, IdleConnTimeout: idleTimeout,
			TLSHandshakeTimeout: timeout, MaxResponseHeaderBytes: largestHeader, DisableCompression: true,
		},
	}}, nil
}

// Path puts a path below the API together; every segment is escaped, whatever it
// holds: Path("accounts", id, "stores", storeID, "confirm").
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		switch s {
		case ".", "..": // a store may be called so; as they are these are no segments
			b.WriteString(strings.ReplaceAll(s, ".", "%2E"))
		default:
			b.WriteString(url.PathEscape(s))
		}
	}
	return b.String()
}

// Do sends one request on behalf of an operator and waits at most 5 s for the
// answer. path begins with a slash and is escaped (Path); body is sent as JSON,
// nil sends none; the answer's data is decoded into into, nil throws it away.
//
// A refusal (4xx) is a *delivery.Error with Code, Message, Fields and RetryAfter
// as the gateway answered. delivery.ErrUnavailable is in the error's chain when
// no gateway answers in time, or it answers 5xx: then the change may or may not
// have been made. ErrWrongKey is a 401. The context's own error is returned when
// ctx ends first. Anything else is a defect: an operator's name that is not 1 to
// 64 printable characters, or an answer that no gateway gives.
func (c *Client) Do(ctx context.Context, operator, method, path string, body, into any) error {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := c.request(bounded, operator, method, path, body)
	if err != nil {
		return fmt.Errorf("admin API: %s %s: %w", method, path, err)
	}
	a, err := c.send(req)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		err = a.read(into)
	}
	var refusal *delivery.Error
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("admin API: %s %s: %w", method, path, err)
	}
	return err
}

func (c *Client) request(ctx context.Context, operator, method, path string, body any) (*http.Request, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, errors.New("the path does not begin with a slash")
	}
	if !printable(operator) {
		return nil, fmt.Errorf("the operator's name must be 1 to %d printable characters", mostOperator)
	}
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the body: %w", err)
		}
		content = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.root+path, content)
	if err != nil {
		return nil, err
	}
	if content != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("X-Operator", operator)
	return req, nil
}

// printable is the gateway's rule for X-Operator; a name that breaks it would be
// missing in the audit log.
func printable(operator string) bool {
	n := utf8.RuneCountInString(operator)
	return n >= 1 && n <= mostOperator && utf8.ValidString(operator) && strings.TrimSpace(operator) == operator &&
		!strings.ContainsFunc(operator, func(r rune) bool { return !unicode.IsPrint(r) })
}

// send gets an answer of at most 1 MB, whatever it says.
func (c *Client) send(req *http.Request) (*answer, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &unavailable{"no gateway answers", err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer+1))
	if err != nil {
		return nil, &unavailable{"the gateway's answer broke off", err}
	}
	return &answer{status: resp.StatusCode, raw: raw}, nil
}
