// Package client calls the service as anyone outside would: JSON over HTTP, the
// envelope, a bearer token. It does not retry: whoever calls decides that, and
// counts it.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Client calls one API with one bearer token. It is safe for concurrent use.
type Client struct {
	Base   string // such as http://127.0.0.1:8080/api/vendor/v1
	Bearer string // empty: no Authorization header
	HTTP   *http.Client
}

// New calls base without a token, over at most conns connections, 30 s a call.
func New(base string, conns int) *Client {
	return &Client{Base: base, HTTP: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{MaxConnsPerHost: conns, MaxIdleConnsPerHost: conns, IdleConnTimeout: time.Minute},
	}}
}

// As is the same client with another base and token, sharing the connections.
func (c *Client) As(base, bearer string) *Client {
	return &Client{Base: base, Bearer: bearer, HTTP: c.HTTP}
}

// Answer is what came back, with the envelope's members.
type Answer struct {
	Status  int             `json:"-"`
	Header  http.Header     `json:"-"`
	Raw     []byte          `json:"-"`
	Success bool            `json:"success"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
	Code    string          `json:"-"` // data.errorCode of a refusal
}

// OK reports a 2xx with success true.
func (a *Answer) OK() bool { return a.Success && a.Status >= 200 && a.Status < 300 }

// Err is nil for a success and the refusal otherwise.
func (a *Answer) Err() error {
	if a.OK() {
		return nil
	}
	return fmt.Errorf("answered %d %s: %s", a.Status, a.Code, a.Message)
}

// Into decodes data, unless dst is nil; a refusal is an error.
func (a *Answer) Into(dst any) error {
	if err := a.Err(); err != nil || dst == nil {
		return err
	}
	if err := json.Unmarshal(a.Data, dst); err != nil {
		return fmt.Errorf("answer %.200s: %w", a.Raw, err)
	}
	return nil
}

// RetryAfter is the header of that name; zero when absent.
func (a *Answer) RetryAfter() time.Duration {
	seconds, _ := strconv.Atoi(a.Header.Get("Retry-After")) // absent or a date: zero
	return time.Duration(seconds) * time.Second
}

// Do calls method on Base+path with body as JSON (nil: none; []byte: as it is)
// and further headers in pairs of name and value. The error is for calls that
// got no answer or one that is no envelope; a refusal is an Answer.
func (c *Client) Do(ctx context.Context, method, path string, body any, headers ...string) (_ *Answer, err error) {
	content, given := body.([]byte)
	if !given && body != nil {
		content, err = json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}

	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}

	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}

	if c.Bearer != "" {
		req.Header.Set("Authorization", "Bearer "+c.Bearer)
	}

	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}

	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	a := &Answer{Status: resp.StatusCode, Header: resp.Header}
	a.Raw, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if err := json.Unmarshal(a.Raw, a); err != nil {
		return nil, fmt.Errorf("%s %s answered %d with no envelope: %.200q", method, path, a.Status, a.Raw)
	}

	if !a.Success {
		var detail struct{ ErrorCode string }
		_ = json.Unmarshal(a.Data, &detail) // a refusal without a code keeps an empty one
		a.Code = detail.ErrorCode
	}

	return a, nil
}

// Call is Do for callers to whom a refusal is a failure; data goes into dst
// unless that is nil.
func (c *Client) Call(ctx context.Context, method, path string, body, dst any, headers ...string) error {
	a, err := c.Do(ctx, method, path, body, headers...)
	if err != nil {
		return err
	}
	if err := a.Into(dst); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// Login gets a token at path (such as "/token") with client credentials and
// returns the client that uses it.
func (c *Client) Login(ctx context.Context, path, clientID, clientSecret string) (*Client, error) {
	var token struct{ AccessToken string }
	credentials := map[string]string{"clientId": clientID, "clientSecret": clientSecret}
	if err := c.Call(ctx, http.MethodPost, path, credentials, &token); err != nil {
		return nil, err
	}
	return c.As(c.Base, token.AccessToken), nil
}
