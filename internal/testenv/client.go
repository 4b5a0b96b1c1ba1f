package testenv

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// AcceptHTML is a header of browsers that navigate.
const AcceptHTML = "Accept: text/html,application/xhtml+xml,*/*;q=0.8"

// Client is an HTTP client that behaves like a browser or a program: it keeps cookies and
// follows no redirect.
type Client struct {
	T       testing.TB
	URL     string   // of the server, without a path
	Headers []string // "Name: value", sent with every request
	HTTP    *http.Client
}

// NewClient is a client of the server at url.
func NewClient(t testing.TB, url string, headers ...string) *Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	Must(t, err)
	transport := &http.Transport{DisableCompression: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // a test's own certificate
	t.Cleanup(transport.CloseIdleConnections)

	return &Client{t, url, headers, &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Serve starts a server that ends with the test, and returns a client of it.
func Serve(t testing.TB, h http.Handler, headers ...string) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return NewClient(t, s.URL, headers...)
}

// For is the same client for another test, such as a subtest.
func (c *Client) For(t testing.TB) *Client { return &Client{t, c.URL, c.Headers, c.HTTP} }

// With is the same client with further headers.
func (c *Client) With(headers ...string) *Client {
	return &Client{c.T, c.URL, slices.Concat(c.Headers, headers), c.HTTP}
}

// Addr is the server's host:port.
func (c *Client) Addr() string { _, addr, _ := strings.Cut(c.URL, "://"); return addr }

// Send sends a request with headers "Name: value", the last of a name wins, and
// leaves the answer's body to the caller.
func (c *Client) Send(method, path, body string, headers ...string) *http.Response {
	c.T.Helper()
	r, err := http.NewRequestWithContext(c.T.Context(), method, c.URL+path, strings.NewReader(body))
	Must(c.T, err)
	for _, all := range [][]string{c.Headers, headers} {
		for _, h := range all {
			name, _, _ := strings.Cut(h, ": ")
			r.Header.Del(name)
		}
		for _, h := range all {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Add(name, value) // one that is given twice is sent twice
		}
	}

	resp, err := c.HTTP.Do(r)
	Must(c.T, err)

	return resp
}

// Do is Send with the answer's body read.
func (c *Client) Do(method, path, body string, headers ...string) *Answer {
	c.T.Helper()
	resp := c.Send(method, path, body, headers...)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	Must(c.T, err)

	return &Answer{Response: resp, T: c.T, Text: string(text)}
}

// Get asks for a page.
func (c *Client) Get(path string, headers ...string) *Answer {
	c.T.Helper()
	return c.Do(http.MethodGet, path, "", headers...)
}

// Page asks for a page that is there.
func (c *Client) Page(path string) *Answer { c.T.Helper(); return c.Get(path).Want(http.StatusOK) }

// Post sends a form.
func (c *Client) Post(path string, form url.Values, headers ...string) *Answer {
	c.T.Helper()
	return c.Do(http.MethodPost, path, form.Encode(), append([]string{"Content-Type: application/x-www-form-urlencoded"}, headers...)...)
}

// ServePipe serves one connection without a network, which it returns: server and client run by the clock of a
// synctest bubble. Both end with the test.
func ServePipe(t testing.TB, h http.Handler) net.Conn {
	t.Helper()
	dialled, accepted := net.Pipe()
	listener, server := make(pipe, 1), &http.Server{Handler: h}
	listener <- accepted
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()

	t.Cleanup(func() { _ = errors.Join(dialled.Close(), server.Close()) })

	return dialled
}

// pipe is a listener that accepts what is sent to it, and that http.Server closes once.
type pipe chan net.Conn

func (p pipe) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipe) Close() error { close(p); return nil }

func (p pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Must ends the test on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
