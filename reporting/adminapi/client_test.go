package adminapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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

func TestNew_RefusesAKeyThatCannotBeSent(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "too-short", "a key with blanks in it", "key\r\nX-Operator: a-b-c", strings.Repeat("ş", 16)} {
		if _, err := New(Settings{URL: "http://gateway"}, key); err == nil || !strings.Contains(err.Error(), "ADMIN_KEY") || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := New(Settings{}, testKey); err == nil {
		t.Error("no URL")
	}
}

func TestDo_SendsWhatTheGatewayNeeds(t *testing.T) {
	t.Parallel()
	type seen struct{ method, uri, body, key, kind, operator, length string }
	var got seen
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		got = seen{r.Method, r.RequestURI, string(body), h.Get("Authorization"), h.Get("Content-Type"), h.Get("X-Operator"), fmt.Sprint(r.ContentLength)}
		_, _ = io.WriteString(w, empty)
	}))
	defer s.Close()
	c := client(t, s.URL)
	must(t, c.Do(t.Context(), "Ayşe Y.", http.MethodPatch, Path("accounts", "a/b", "stores", ".."), map[string]bool{"suspended": true}, nil))
	if want := (seen{"PATCH", "/api/admin/v1/accounts/a%2Fb/stores/%2E%2E", `{"suspended":true}`, "Bearer " + testKey, "application/json", "Ayşe Y.", "18"}); got != want {
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
	c := client(t, s.URL)
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

func TestDo_NoGateway(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	l.Close()
	err = client(t, "http://"+address).Do(t.Context(), "ece", http.MethodGet, "/accounts", nil, nil)
	if kind(err) != "unavailable" || !strings.Contains(err.Error(), "no gateway answers") {
		t.Error(err)
	}
}

// silentServer answers nothing, or begins an answer and does not end it.
func silentServer(t testing.TB, begin string) string {
	t.Helper()
	ended := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begin != "" {
			_, _ = io.WriteString(w, begin)
			w.(http.Flusher).Flush()
		}
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(ended) })
	return s.URL
}

func TestDo_WaitsFiveSeconds(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"for nothing": "", "for an answer's end": `{"success":`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, began := client(t, silentServer(t, begin)), time.Now()
			err := c.Do(t.Context(), "ece", http.MethodPost, "/x", nil, nil)
			if took := time.Since(began); kind(err) != "unavailable" || !errors.Is(err, context.DeadlineExceeded) || took < 4*time.Second || took > 8*time.Second {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}

func TestDo_CallerThatGoesAwayIsNoOutage(t *testing.T) {
	t.Parallel()
	c := client(t, silentServer(t, ""))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Do(ctx, "ece", http.MethodPost, "/x", nil, nil); errors.Is(err, delivery.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestDo_UsesConnectionsAgainAndIsSafeForMany(t *testing.T) {
	t.Parallel()
	var connections, under, most atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for n, seen := under.Add(1), most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		defer under.Add(-1)
		if r.Method == http.MethodPut {
			time.Sleep(10 * time.Millisecond)
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
	c := client(t, s.URL)
	for i := range 20 {
		method := []string{http.MethodPost, http.MethodDelete}[i%2]
		if err := c.Do(t.Context(), "ece", method, "/x", nil, nil); kind(err) != []string{"none", "refusal"}[i%2] {
			t.Fatal(err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections for 20 requests, one after the other", n)
	}
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if err := c.Do(t.Context(), "ece", http.MethodPut, "/x", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	// Connections that nobody keeps are closed and made anew, so only what is under
	// way at once has a bound.
	if n := most.Load(); n < 2 || n > mostConnections {
		t.Errorf("%d of 200 requests were under way at once", n)
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
