package layout

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
)

const (
	repeatAnswer  = 30 * time.Second
	rememberSent  = time.Hour
	mostSentForms = 4096
)

// Once carries out forms. Every showing of one has a number, in the field "once". A form that
// arrives again with the same number and content is a double click or a reload: within
// repeatAnswer it gets the first answer, which may hold a secret; after that it leads to its page
// with "sent-before". Other replicas do not know it: where doing it twice would hurt, the form
// carries the version of its record.
type Once struct {
	Timeout time.Duration // of an action, which goes on when the browser disconnects
	sent    sentForms
}

// Handler carries out each form once.
func (o *Once) Handler(act Handler) Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !utf8.ValidString(fmt.Sprint(r.PostForm)) { // it could not be sent on as it was typed
			return delivery.Refuse(delivery.CodeMalformedRequest, "the form is not UTF-8")
		}

		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), o.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
		if r.PostForm.Get("once") == "" {
			return delivery.Refuse(delivery.CodeMalformedRequest, "the form lacks its number; load the page again")
		}

		key := sha256.Sum256([]byte(auth.IdentityOf(ctx).Name + "\n" + r.URL.RequestURI() + "\n" + r.PostForm.Encode()))
		answer, err := o.sent.carryOut(key, func() (*recording, error) {
			answer := &recording{header: w.Header().Clone()}
			return answer, act(answer, r)
		})

		switch {
		case err != nil:
			return err
		case answer == nil:
			return Redirect(w, r, PageOf(r.URL), "sent-before")
		}

		maps.Copy(w.Header(), answer.header)
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes()) // the browser may have gone

		return nil
	}
}

type formKey [sha256.Size]byte

// PageOf is the page on which a form stands: an action's path is one segment
// longer, and forms that create stand on the list itself.
func PageOf(action *url.URL) string {
	escaped := action.EscapedPath()
	if strings.Count(escaped, "/") == 1 {
		return escaped
	}

	page := path.Dir(escaped)
	if action.RawQuery != "" {
		page += "?" + action.RawQuery
	}
	return page
}

// sentForms are the answers of the forms that were carried out, or are just now.
type sentForms struct {
	mu      sync.Mutex
	answers map[formKey]func() (*recording, error)
}

// carryOut is act's answer, of the first call with this key for all; nil when that was
// longer than repeatAnswer ago.
func (s *sentForms) carryOut(key formKey, act func() (*recording, error)) (*recording, error) {
	s.mu.Lock()
	answer := s.answers[key]
	if answer == nil {
		answer = sync.OnceValues(func() (answer *recording, err error) {
			defer func() { // also when act panics
				if err != nil || answer == nil || answer.status >= http.StatusBadRequest {
					s.set(key, nil) // what was refused may be sent again
					return
				}
				time.AfterFunc(repeatAnswer, func() { s.set(key, sentBefore) })
				time.AfterFunc(rememberSent, func() { s.set(key, nil) })
			}()

			return act()
		})

		if s.answers == nil {
			s.answers = map[formKey]func() (*recording, error){}
		}

		if len(s.answers) < mostSentForms {
			s.answers[key] = answer
		}
	}

	s.mu.Unlock()

	return answer()
}

func sentBefore() (*recording, error) { return nil, nil }

// set replaces an answer that is remembered; nil forgets it.
func (s *sentForms) set(key formKey, answer func() (*recording, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[key] != nil {
		s.answers[key] = answer
	}

	if answer == nil {
		delete(s.answers, key)
	}
}

type recording struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *recording) Header() http.Header { return a.header }

func (a *recording) WriteHeader(status int) { a.status = cmp.Or(a.status, status) }

func (a *recording) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}
