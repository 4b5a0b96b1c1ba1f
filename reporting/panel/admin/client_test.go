package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vendorapi/internal/delivery"
)

const empty = `{"success":true,"data":{}}`

func TestSettings_Validate(t *testing.T) {
	t.Parallel()

	for url, valid := range map[string]bool{
		"http://127.0.0.1:8081": true, "https://gateway.internal": true, "http://[::1]:8081": true, "https://proxy/gateway": true,
		"": false, "gateway:8081": false, "//gateway:8081": false, "ftp://gateway": false, "http://": false, "http://:8081": false,
		"http://gateway/": false, "http://gateway/x/": false, "http://gateway?x=1": false, "http://gateway?": false,
		"http://gateway#x": false, "http://gateway#": false, "http://u:geheim@gateway": false, "http://gate way": false, "unix:///run/g.sock": false,
	} {
		s := Settings{URL: url}
		err := s.Validate()
		if (err == nil) != valid || err != nil && (!strings.HasPrefix(err.Error(), "url: ") || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestNewClient_RefusesAKeyThatCannotBeSent(t *testing.T) {
	t.Parallel()

	for _, key := range []string{"", "too-short", "a key with blanks in it", "key\r\nX-Operator: a-b-c", strings.Repeat("ş", 16)} {
		if _, err := NewClient(Settings{URL: "http://gateway"}, key); err == nil || !strings.Contains(err.Error(), "ADMIN_KEY") || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}

	if _, err := NewClient(Settings{}, testKey); err == nil {
		t.Error("no URL")
	}
}

func TestDo_SendsWhatTheGatewayNeeds(t *testing.T) {
	t.Parallel()

	type seen struct{ method, uri, body, key, kind, operator, length string }
	var got seen
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		got = seen{r.Method, r.RequestURI, string(body), h.Get("Authorization"), h.Get("Content-Type"), h.Get("X-Operator"), fmt.Sprint(r.ContentLength)}
		if id := h.Get("X-Request-Id"); len(id) != 16 || slices.Contains(requests, id) {
			t.Errorf("request id %q, before %q", id, requests)
		} else {
			requests = append(requests, id)
		}

		_, _ = io.WriteString(w, empty)
	}))
	defer s.Close()
	c := newClient(t, s.URL)
	must(t, c.Do(t.Context(), "Ayşe Y.", http.MethodPatch, Path("accounts", "a/b", "stores", ".."), map[string]bool{"suspended": true}, nil))
	if want := (seen{"PATCH", "/api/admin/v1/accounts/a%2Fb/stores/%2E%2E", `{"suspended":true}` + "\n", "Bearer " + testKey, "application/json", "Ayşe Y.", "19"}); got != want {
		t.Errorf("%+v", got)
	}

	must(t, c.Do(t.Context(), "ece", http.MethodPost, "/accounts/1/webhook/deliveries?status=retrying", nil, nil))
	if want := (seen{"POST", "/api/admin/v1/accounts/1/webhook/deliveries?status=retrying", "", "Bearer " + testKey, "", "ece", "0"}); got != want {
		t.Errorf("%+v", got)
	}
}

func TestDo_SendsNothingThatIsWrong(t *testing.T) {
	t.Parallel()

	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer s.Close()
	c := newClient(t, s.URL)
	for _, operator := range []string{"", " ", " ece", "ece ", "a\nb", "a\r\nX: y", "a\tb", "a\x00b", "a\x7fb", "\xff", "a\u200bb", "a\u202eb", "a\u00a0b", strings.Repeat("ş", 65)} {
		if err := c.Do(t.Context(), operator, http.MethodPost, "/x", nil, nil); kind(err) != "broken" || !strings.Contains(err.Error(), "operator") {
			t.Errorf("operator %q: %v", operator, err)
		}
	}

	for _, path := range []string{"", "accounts", "@thief.example/x", "/a b\x00", "/%zz"} {
		if err := c.Do(t.Context(), "ece", http.MethodPost, path, nil, nil); kind(err) != "broken" {
			t.Errorf("path %q: %v", path, err)
		}
	}

	if err := c.Do(t.Context(), "ece", "PO ST", "/x", nil, nil); kind(err) != "broken" {
		t.Errorf("method: %v", err)
	}
	if err := c.Do(t.Context(), "ece", http.MethodPost, "/x", func() {}, nil); kind(err) != "broken" {
		t.Errorf("body: %v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// The gateway answers nothing, or begins an answer and does not end it.
func TestDo_WaitsFiveSeconds(t *testing.T) {
	t.Parallel()

	for name, begin := range map[string]string{"for nothing": "", "for an answer's end": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"success\":"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, "http://gateway")
				transport := c.http.Transport.(*http.Transport)
				transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go func() {
						_, _ = theirs.Read(make([]byte, 64<<10))
						_, _ = io.WriteString(theirs, begin)
						_, _ = io.Copy(io.Discard, theirs) // until the client hangs up
					}()
					return ours, nil
				}
				defer transport.CloseIdleConnections()
				began := time.Now()
				err := c.Do(t.Context(), "ece", http.MethodPost, "/x", nil, nil)
				if kind(err) != "unavailable" || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != timeout {
					t.Errorf("%v after %v", err, time.Since(began))
				}

				// A caller that disconnects is no outage.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Do(ctx, "ece", http.MethodPost, "/x", nil, nil); errors.Is(err, delivery.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		})
	}
}

func TestDo_UsesConnectionsAgainAndIsSafeForMany(t *testing.T) {
	t.Parallel()

	var connections, under, most atomic.Int64
	var opened atomic.Bool
	full := make(chan struct{}) // closed once as many are in progress as may be
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			n := under.Add(1)
			defer under.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			if n == mostConnections && !opened.Swap(true) {
				close(full)
			}
			<-full
		}

		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"success":false,"message":"no","data":{"errorCode":"ACCOUNT_NOT_FOUND"}}`)
			return
		}

		_, _ = io.WriteString(w, empty)
	}))

	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}

	s.Start()
	defer s.Close()
	c := newClient(t, s.URL)
	for i := range 20 {
		method := []string{http.MethodPost, http.MethodDelete}[i%2]
		if err := c.Do(t.Context(), "ece", method, "/x", nil, nil); kind(err) != []string{"none", "refusal"}[i%2] {
			t.Fatal(err)
		}
	}

	// The transport gives a connection up when it learns of its own write 50 ms late.
	if n := connections.Load(); n > 5 {
		t.Errorf("%d connections for 20 requests, one after the other", n)
	}

	var all sync.WaitGroup
	for range mostConnections + 8 { // those beyond wait for a connection
		all.Go(func() {
			if err := c.Do(t.Context(), "ece", http.MethodPut, "/x", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}

	all.Wait()
	if n := most.Load(); n != mostConnections {
		t.Errorf("%d requests were in progress at once, want %d", n, mostConnections)
	}
}

func TestPath_EscapesSegments(t *testing.T) {
	t.Parallel()

	for want, segments := range map[string][]string{
		"/accounts":                     {"accounts"},
		"/stores/a%2Fb%3Fc%23d%25/x":    {"stores", "a/b?c#d%", "x"},
		"/stores/%C5%9Fube%201/confirm": {"stores", "şube 1", "confirm"},
		"/stores/%2E%2E/%2E/...":        {"stores", "..", ".", "..."},
	} {
		if got := Path(segments...); got != want {
			t.Errorf("%q: %s", segments, got)
		}
	}
}
