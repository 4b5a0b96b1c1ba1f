package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/layout"
)

// Every showing of a form has a number of its own; a form without one is no form
// of these pages and is refused. A form that arrives again
// with the same number and the same content is the same deed once more: a
// double click, or a page that was loaded again. Within repeatAnswer it gets the
// first one's answer, because a browser shows only the last and the first may
// have held a secret; after that it is told that it was sent before.
//
// This process remembers it, for an hour. Behind several replicas a second click
// may reach another one: panel.js keeps most of those back, and where doing it
// twice would hurt, the form also says which version of the record it is about.
const (
	repeatAnswer  = 30 * time.Second
	rememberSent  = time.Hour
	mostSentForms = 4096
	longestAct    = 20 * time.Second
)

type formKey [sha256.Size]byte

// sentForms are the forms that were carried out.
type sentForms struct {
	mu   sync.Mutex
	last map[formKey]*sentForm
}

// sentForm is one of them; ended is closed when its answer is there.
type sentForm struct {
	ended  chan struct{}
	answer *recording // nil: it failed, or it was long ago
	err    error
}

// once carries out a form that may arrive twice. What was refused may be sent
// again. The deed is ended even when the browser goes away.
func (p *Pages) once(act layout.Handler) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := readForm(w, r); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), longestAct)
		defer cancel()
		r = r.WithContext(ctx)
		if r.PostForm.Get("once") == "" {
			return delivery.Refuse(delivery.CodeMalformedRequest, "the form lacks its number; load the page again")
		}
		key := keyOf(r)
		form, first := p.sent.begin(key)
		if first {
			p.carryOut(act, form, key, w.Header().Clone(), r)
		}
		<-form.ended
		answer := p.sent.answer(form)
		switch {
		case form.err != nil:
			return form.err
		case answer == nil:
			return layout.Redirect(w, r, pageOf(r.URL), "sent-before")
		}
		answer.replay(w)
		return nil
	}
}

// errBroken stands for a deed that ended in a panic.
var errBroken = errors.New("the action broke off")

func (p *Pages) carryOut(act layout.Handler, form *sentForm, key formKey, header http.Header, r *http.Request) {
	form.answer, form.err = &recording{header: header}, errBroken
	defer p.sent.end(key, form)
	form.err = act(form.answer, r)
}

// keyOf tells forms apart by who sent what where.
func keyOf(r *http.Request) formKey {
	who := auth.IdentityOf(r.Context()).Name
	return sha256.Sum256([]byte(who + "\n" + r.URL.RequestURI() + "\n" + r.PostForm.Encode()))
}

// pageOf is the page on which a form stands: an action's path is one segment
// longer, and forms that create stand on the list itself.
func pageOf(action *url.URL) string {
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

// begin finds a form, or notes one that was not sent before.
func (s *sentForms) begin(key formKey) (form *sentForm, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[formKey]*sentForm{}
	}
	if form = s.last[key]; form != nil {
		return form, false
	}
	form = &sentForm{ended: make(chan struct{})}
	if len(s.last) < mostSentForms {
		s.last[key] = form
	}
	return form, true
}

// end tells those who wait. A refusal is forgotten, and of a deed the answer
// first, then that it was done.
func (s *sentForms) end(key formKey, form *sentForm) {
	close(form.ended)
	if form.err != nil || form.answer.status >= http.StatusBadRequest {
		s.forget(key, form)
		return
	}
	time.AfterFunc(repeatAnswer, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		form.answer = nil
		time.AfterFunc(rememberSent-repeatAnswer, func() { s.forget(key, form) })
	})
}

func (s *sentForms) forget(key formKey, form *sentForm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[key] == form {
		delete(s.last, key)
	}
}

func (s *sentForms) answer(form *sentForm) *recording {
	s.mu.Lock()
	defer s.mu.Unlock()
	return form.answer
}

// recording is an answer that can be given more than once.
type recording struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *recording) Header() http.Header { return a.header }

func (a *recording) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recording) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *recording) replay(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the asker may have gone
}
