package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func service(t *testing.T, status int, header http.Header, body string) *Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header()[k] = v
		}
		sent, _ := io.ReadAll(r.Body)
		w.WriteHeader(status)
		body := strings.NewReplacer("$AUTH", r.Header.Get("Authorization"), "$SENT", strings.ReplaceAll(string(sent), `"`, "'"),
			"$KEY", r.Header.Get("X-Key"), "$TYPE", r.Header.Get("Content-Type")).Replace(body)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return New(s.URL, 2)
}

func TestDo_SendsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	c := service(t, 201, nil, `{"success":true,"data":{"auth":"$AUTH","sent":"$SENT","key":"$KEY","type":"$TYPE"}}`)
	a, err := c.As(c.Base, "tok").Do(t.Context(), "POST", "/x", map[string]int{"a": 1}, "X-Key", "k")
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Auth, Sent, Key, Type string }
	if err := a.Into(&got); err != nil {
		t.Fatal(err)
	}
	if got.Auth != "Bearer tok" || got.Sent != "{'a':1}" || got.Key != "k" || got.Type != "application/json" || a.Status != 201 {
		t.Errorf("%+v", got)
	}
	if a, err = c.Do(t.Context(), "POST", "/x", []byte("raw")); err != nil || !strings.Contains(string(a.Raw), `"sent":"raw"`) {
		t.Errorf("%s, %v", a.Raw, err)
	}
	if a, err = c.Do(t.Context(), "GET", "/x", nil); err != nil || !strings.Contains(string(a.Raw), `"type":""`) {
		t.Errorf("%s, %v", a.Raw, err)
	}
}

func TestDo_TakesARefusalApart(t *testing.T) {
	t.Parallel()
	c := service(t, 429, http.Header{"Retry-After": {"7"}}, `{"success":false,"message":"slow down","data":{"errorCode":"RATE_LIMITED"}}`)
	a, err := c.Do(t.Context(), "GET", "/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.OK() || a.Code != "RATE_LIMITED" || a.RetryAfter() != 7*time.Second {
		t.Errorf("%+v", a)
	}
	if err := c.Call(t.Context(), "GET", "/x", nil, nil); err == nil || !strings.Contains(err.Error(), "GET /x: answered 429 RATE_LIMITED: slow down") {
		t.Errorf("Call: %v", err)
	}
}

func TestDo_AnAnswerWithoutEnvelopeIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := service(t, 502, nil, "<html>").Do(t.Context(), "GET", "/x", nil); err == nil || !strings.Contains(err.Error(), "502 with no envelope") {
		t.Errorf("got %v", err)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	c := service(t, 200, nil, `{"success":true,"data":{"accessToken":"abc"}}`)
	in, err := c.Login(t.Context(), "/token", "id", "secret")
	if err != nil || in.Bearer != "abc" {
		t.Errorf("%+v, %v", in, err)
	}
	refusing := service(t, 401, nil, `{"success":false,"data":{"errorCode":"INVALID_CREDENTIALS"}}`)
	if _, err := refusing.Login(t.Context(), "/token", "id", "secret"); err == nil {
		t.Error("logged in with refused credentials")
	}
}
