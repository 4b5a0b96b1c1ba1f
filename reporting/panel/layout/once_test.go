package layout

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"vendorapi/internal/testenv"
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
