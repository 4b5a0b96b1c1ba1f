package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

const testKey = "an-admin-key-of-some-length"

func newClient(t testing.TB, url string) *Client {
	t.Helper()
	c, err := NewClient(Settings{URL: url}, testKey)
	must(t, err)
	return c
}

// bytesServer answers whatever it is asked with these bytes and hangs up: the
// other end of the wire, which need not be a gateway.
func bytesServer(t testing.TB, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 64<<10))
				_, _ = c.Write([]byte(answer))
				// A receiver that has not read everything would send a reset.
				_ = c.(*net.TCPConn).CloseWrite()
				_, _ = c.Read(make([]byte, 1))
			}()
		}
	}()

	return "http://" + l.Addr().String()
}

func response(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, len(body), body)
}

// kind is what the panel has to tell apart.
func kind(err error) string {
	var refusal *delivery.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &refusal):
		return "refusal"
	case errors.Is(err, delivery.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrWrongKey):
		return "wrong key"
	}

	return "broken"
}

func TestDo_TellsAnswersApart(t *testing.T) {
	t.Parallel()

	const success = `{"success":true,"data":{"eventId":"evt_1"}}`
	refusal := func(data string) string { return `{"success":false,"message":"no","data":` + data + `}` }
	large := `{"success":true,"data":{"eventId":"` + strings.Repeat("x", largestAnswer) + `"}}`
	for name, c := range map[string]struct{ answer, want, shows string }{
		"success":                        {response(200, success), "none", ""},
		"success, 201":                   {response(201, success), "none", ""},
		"success with more members":      {response(200, `{"success":true,"data":{"eventId":"evt_1","new":[1]},"more":{}}`), "none", ""},
		"nothing at all":                 {"", "unavailable", "no gateway answers"},
		"no HTTP":                        {"SSH-2.0-OpenSSH_9.2\r\n", "unavailable", "no gateway answers"},
		"half a status line":             {"HTTP/1.1 2", "unavailable", "no gateway answers"},
		"endless headers":                {"HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 1<<20), "unavailable", "no gateway answers"},
		"a body cut off":                 {strings.TrimSuffix(response(200, success), `1"}}`), "unavailable", "broke off"},
		"a refusal cut off":              {strings.TrimSuffix(response(422, refusal(`{"errorCode":"X"}`)), `"}}`), "unavailable", "broke off"},
		"broken chunks":                  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "unavailable", "broke off"},
		"an empty body":                  {response(200, ""), "broken", "answered 200"},
		"an empty 404":                   {response(404, ""), "broken", "answered 404"},
		"204":                            {"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", "broken", "answered 204"},
		"HTML":                           {response(200, "<html><body>It works!</body></html>"), "broken", "answered 200"},
		"a proxy's HTML":                 {response(404, "<html>nginx</html>"), "broken", "<html>nginx</html>"},
		"half an envelope":               {response(200, `{"success":true,"data":{"eventId":"evt`), "broken", "answered 200"},
		"more than an envelope":          {response(200, success+success), "broken", "answered 200"},
		"another JSON":                   {response(200, `{"status":"ok"}`), "broken", "no envelope"},
		"an array":                       {response(200, `[]`), "broken", "no envelope"},
		"null":                           {response(200, `null`), "broken", "no envelope"},
		"no data":                        {response(200, `{"success":true}`), "broken", "no envelope"},
		"data of another type":           {response(200, `{"success":true,"data":{"eventId":7}}`), "broken", "answered 200"},
		"data that is an array":          {response(200, `{"success":true,"data":[]}`), "broken", "answered 200"},
		"more than 1 MB":                 {response(200, large), "broken", "more than 1 MB"},
		"more than 1 MB, refused":        {response(422, large), "broken", "more than 1 MB"},
		"more than 1 MB, 500":            {response(500, large), "unavailable", "answered 500"},
		"a success that is none":         {response(200, refusal(`{"errorCode":"STORE_NOT_FOUND"}`)), "broken", "contradicts"},
		"a refusal that is none":         {response(404, success), "broken", "contradicts"},
		"a redirect":                     {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "broken", "answered 302"},
		"a redirect with an envelope":    {response(307, refusal(`{"errorCode":"STORE_NOT_FOUND"}`)), "broken", "contradicts"},
		"refused":                        {response(404, refusal(`{"errorCode":"STORE_NOT_FOUND"}`)), "refusal", "STORE_NOT_FOUND: no"},
		"refused with a code of later":   {response(409, refusal(`{"errorCode":"NEW_CODE"}`)), "refusal", "NEW_CODE: no"},
		"refused without code":           {response(404, refusal(`{}`)), "broken", "without errorCode"},
		"refused with data of no object": {response(404, refusal(`"x"`)), "broken", "answered 404"},
		"the key is wrong":               {response(401, refusal(`{"errorCode":"TOKEN_INVALID"}`)), "wrong key", "ADMIN_KEY"},
		"somebody's 401":                 {response(401, "<html>"), "wrong key", "ADMIN_KEY"},
		"503":                            {response(503, refusal(`{"errorCode":"SERVICE_UNAVAILABLE","requestId":"00ab"}`)), "unavailable", `answered 503, request id "00ab"`},
		"500":                            {response(500, refusal(`{"errorCode":"INTERNAL_ERROR","requestId":"00cd"}`)), "unavailable", `request id "00cd"`},
		"a proxy's 502":                  {response(502, "<html>bad gateway</html>"), "unavailable", "answered 502"},
		"an empty 500":                   {response(500, ""), "unavailable", "answered 500"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var got struct{ EventID string }
			err := newClient(t, bytesServer(t, c.answer)).Do(t.Context(), "ece", http.MethodPost, "/x", nil, &got)
			if kind(err) != c.want || err != nil && !strings.Contains(err.Error(), c.shows) {
				t.Errorf("%s: %v, want %s with %q", kind(err), err, c.want, c.shows)
			}

			if err == nil && got.EventID != "evt_1" {
				t.Errorf("data = %+v", got)
			}

			if err != nil && (strings.Contains(err.Error(), testKey) || len(err.Error()) > 1000 || strings.Contains(err.Error(), "evt_1")) {
				t.Errorf("the error tells too much: %v", err)
			}
		})
	}
}

func TestDo_RefusalComesWhole(t *testing.T) {
	t.Parallel()

	for body, want := range map[string]delivery.Error{
		`{"success":false,"message":"name is <b>required</b>","data":{"errorCode":"VALIDATION_FAILED","fields":[{"field":"name","message":"is required"},{"field":"limits.orders","message":"ş"}]}}`: {
			Code: delivery.CodeValidationFailed, Message: "name is <b>required</b>",
			Fields: []delivery.FieldError{{Field: "name", Message: "is required"}, {Field: "limits.orders", Message: "ş"}}},
		`{"success":false,"message":"wait","data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":7}}`: {
			Code: delivery.CodeRateLimited, Message: "wait", RetryAfter: 7 * time.Second},
		`{"success":false,"message":"wait","data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":9223372036854775807}}`: {
			Code: delivery.CodeRateLimited, Message: "wait", RetryAfter: longestWait},
		`{"success":false,"message":"wait","data":{"errorCode":"RATE_LIMITED","retryAfterSeconds":-1}}`: {
			Code: delivery.CodeRateLimited, Message: "wait"},
	} {
		err := newClient(t, bytesServer(t, response(422, body))).Do(t.Context(), "ece", http.MethodPost, "/x", nil, nil)
		var got *delivery.Error
		if !errors.As(err, &got) || !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v", body, err)
		}
	}
}

func TestDo_FollowsNoRedirect(t *testing.T) {
	t.Parallel()

	var thief atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { thief.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(other.URL, status))
		if err := newClient(t, s.URL).Do(t.Context(), "ece", http.MethodPost, "/x", nil, nil); kind(err) != "broken" {
			t.Errorf("%d: %v", status, err)
		}
		s.Close()
	}

	if n := thief.Load(); n != 0 {
		t.Errorf("the key was sent elsewhere %d times", n)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"success":true,"data":{"eventId":"evt_1"}}`)
	f.Add(422, `{"success":false,"message":"no","data":{"errorCode":"VALIDATION_FAILED","fields":[{"field":"a","message":"b"}],"retryAfterSeconds":3}}`)
	f.Add(503, `{"success":false,"message":"no","data":{"errorCode":"SERVICE_UNAVAILABLE","requestId":"1"}}`)
	f.Add(401, `{}`)
	f.Add(404, `null`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		var into any
		err := read(status, []byte(body), &into)
		if ok := status >= 200 && status < 300; err == nil && !ok {
			t.Errorf("%d is a success", status)
		}
		if err == nil && !json.Valid([]byte(body)) {
			t.Error("a success that is no JSON")
		}

		if k := kind(err); (k == "unavailable") != (status >= 500) || (k == "wrong key") != (status == 401) {
			t.Errorf("%d is %s", status, k)
		}
		if err != nil && errors.Is(err, context.Canceled) {
			t.Error("nobody gave up")
		}
	})
}
