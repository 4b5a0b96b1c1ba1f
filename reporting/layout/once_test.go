package layout

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/auth"
)

// What is remembered of a form later says only that it was done.
func TestOnce_LaterSaysThatItWasSentBefore(t *testing.T) {
	t.Parallel()

	o, done := Once{Timeout: time.Minute}, 0
	handle := o.Handler(func(w http.ResponseWriter, r *http.Request) error {
		done++
		return Redirect(w, r, "/accounts/x", "renamed")
	})

	send := func() string {
		r := httptest.NewRequest(http.MethodPost, "/accounts/x/name?id=y", nil)
		r.PostForm = url.Values{"once": {"1"}, "name": {"x"}}
		w := httptest.NewRecorder()
		testenv.Must(t, handle(w, r))
		return w.Header().Get("Location")
	}

	for range 2 {
		if to := send(); to != "/accounts/x?done=renamed" {
			t.Error(to)
		}
	}

	for key := range o.sent.answers {
		o.sent.set(key, sentBefore)
	}

	if to := send(); to != "/accounts/x?id=y&done=sent-before" || done != 1 {
		t.Errorf("%s, done %d times", to, done)
	}
}

func TestOnce_WhatWasRefusedMayBeSentAgain(t *testing.T) {
	t.Parallel()

	for _, status := range []int{http.StatusBadRequest, http.StatusConflict, http.StatusInternalServerError} {
		var forms sentForms
		for range 2 {
			wasDone := false
			_, err := forms.carryOut(formKey{1}, func() (*recording, error) {
				wasDone = true
				return &recording{status: status}, nil
			})
			if err != nil || !wasDone {
				t.Errorf("after %d: %v, %v", status, wasDone, err)
			}
		}
	}
}

// Programs may number their forms alike.
func TestOnce_IsOfOnePersonAlone(t *testing.T) {
	t.Parallel()

	var people auth.People
	var texts []string
	for _, name := range []string{"deniz", "ece"} {
		text, token, err := auth.NewToken(name, auth.Roles{auth.Operator})
		testenv.Must(t, err)
		people.Tokens, texts = append(people.Tokens, token), append(texts, text)
	}

	gate, err := auth.New(nil, people, auth.Settings{PasswordChecks: 1}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	testenv.Must(t, err)
	o, done := Once{Timeout: time.Minute}, 0
	handle := o.Handler(func(w http.ResponseWriter, r *http.Request) error {
		done++
		return Redirect(w, r, "/accounts/x", "renamed")
	})

	pages := gate.Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.PostForm = url.Values{"once": {"1"}, "name": {"x"}}
		testenv.Must(t, handle(w, r))
	}))

	for _, text := range texts {
		r := httptest.NewRequest(http.MethodPost, "/accounts/x/name", nil)
		r.Header.Set("Authorization", "Bearer "+text)
		pages.ServeHTTP(httptest.NewRecorder(), r)
	}

	if done != 2 {
		t.Errorf("done %d times, want 2", done)
	}
}

func TestOnce_RefusesFormsThatCannotBeRepeated(t *testing.T) {
	t.Parallel()

	var o Once
	handle := o.Handler(func(http.ResponseWriter, *http.Request) error {
		t.Error("it was done")
		return nil
	})

	for name, form := range map[string]url.Values{
		"without a number": {"name": {"x"}},
		"an empty number":  {"once": {""}, "name": {"x"}},
		"not UTF-8":        {"once": {"1"}, "name": {"\xff"}},
		"a name not UTF-8": {"once": {"1"}, "\xff": {"x"}},
	} {
		r := httptest.NewRequest(http.MethodPost, "/accounts/x/name", nil)
		r.PostForm = form
		if err := handle(httptest.NewRecorder(), r); delivery.CodeOf(err) != delivery.CodeMalformedRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOnce_PanicEndsTheAction(t *testing.T) {
	t.Parallel()

	var forms sentForms
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = forms.carryOut(formKey{1}, func() (*recording, error) { panic("broken") })
	}()

	answer, err := forms.carryOut(formKey{1}, func() (*recording, error) { return &recording{status: http.StatusOK}, nil })
	if answer == nil || err != nil {
		t.Errorf("it may not be sent again: %v", err)
	}
}

func TestOnce_IsBounded(t *testing.T) {
	t.Parallel()

	var forms sentForms
	for i := range mostSentForms + 10 {
		first := false
		_, _ = forms.carryOut(formKey{byte(i), byte(i >> 8), byte(i >> 16)}, func() (*recording, error) {
			first = true
			return &recording{status: http.StatusOK}, nil
		})
		if !first {
			t.Fatal("not the first")
		}
	}

	if len(forms.answers) != mostSentForms {
		t.Error(len(forms.answers))
	}
}
