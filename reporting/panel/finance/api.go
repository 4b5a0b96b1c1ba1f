package finance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/layout"
)

// The addresses of what `reporting month` calls. Who calls them has signed in as in a browser, and
// sends the header X-CSRF-Token with what BooksView.CSRF says.
const (
	BooksPath = "/books"
	TaskPath  = BooksPath + "/task"
)

// DecisionPath returns where a decision is sent, as a form with the fields of decisionOf.
func DecisionPath(d closing.Decision) string {
	if d.Month.IsZero() {
		return BooksPath + "/" + d.Kind
	}
	return BooksPath + "/months/" + d.Month.String() + "/" + d.Kind
}

// BooksView answers GET /books: what a program needs to send a decision.
type BooksView struct {
	CSRF string `json:"csrf"`

	// Held is the seal of the current hold, or closing.NoHold.
	Held string `json:"held"`
}

// apiRoutes adds what programs call for people: reading for finance, deciding for closers.
func (p *Pages) apiRoutes(mux *http.ServeMux) {
	p.Handle(mux, "GET "+BooksPath, p.answerBooks, auth.Finance)
	p.Handle(mux, "GET "+TaskPath, p.answerTask, auth.Finance)
	for _, kind := range []string{closing.KindHold, closing.KindRelease, closing.KindClose} {
		p.Handle(mux, "POST "+BooksPath+"/months/{month}/"+kind, p.acceptDecision(kind), auth.Closer)
	}

	for _, kind := range []string{closing.KindCorrection, closing.KindDispute, closing.KindSetAside} {
		p.Handle(mux, "POST "+BooksPath+"/"+kind, p.acceptDecision(kind), auth.Closer)
	}
}

func (p *Pages) answerBooks(w http.ResponseWriter, r *http.Request) error {
	v := BooksView{CSRF: auth.IdentityOf(r.Context()).CSRF, Held: closing.NoHold}
	err := p.within(r.Context(), p.reading, p.pageLimit, func(ctx context.Context) error {
		l, err := p.books.Read(ctx)
		if err == nil && l.Held != nil {
			v.Held = l.Held.Seal
		}
		return err
	})
	if err != nil {
		return refusalOf(err)
	}

	return writeData(w, http.StatusOK, v)
}

func (p *Pages) answerTask(w http.ResponseWriter, r *http.Request) error {
	task, err := p.books.LastTask(r.Context())
	if err != nil {
		return err
	}
	return writeData(w, http.StatusOK, task)
}

// acceptDecision answers with the task: 202 while it is in progress.
func (p *Pages) acceptDecision(kind string) layout.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		d, err := decisionOf(r, kind)
		if err != nil {
			return err
		}

		task, err := p.start(r, d)
		neverBegan := err != nil && !task.HasEnded()
		if neverBegan || closing.IsRefusal(err) {
			return refusalOf(err)
		}

		// Any other failure is in the task.
		if task.HasEnded() {
			return writeData(w, http.StatusOK, task)
		}

		return writeData(w, http.StatusAccepted, task)
	}
}

// decisionOf reads a decision from a form: note, held (the seal of the hold that was seen), and order
// for each order to book.
func decisionOf(r *http.Request, kind string) (closing.Decision, error) {
	d := closing.Decision{Kind: kind, Held: r.PostForm.Get("held")}
	var err error
	if r.PathValue("month") != "" {
		d.Month, err = monthOf(r)
		if err != nil {
			return d, err
		}
	}

	d.Note, err = noteOf(r)
	if err != nil {
		return d, err
	}

	for _, text := range r.PostForm["order"] {
		id, err := delivery.ParseOrderID(text)
		if err != nil {
			return d, layout.Invalid("Nothing was booked.", delivery.FieldError{Field: "order", Message: "is no order's id"})
		}
		d.Orders = append(d.Orders, id)
	}

	if kind != closing.KindCorrection {
		return d, nil
	}
	if d.Note == "" {
		return d, layout.Invalid("Nothing was booked.", delivery.FieldError{Field: "note", Message: "says why this is right; it is needed"})
	}
	if len(d.Orders) == 0 {
		return d, layout.Invalid("Nothing was booked.", delivery.FieldError{Field: "order", Message: "choose those to book"})
	}

	return d, nil
}

// start carries out a decision in the name of the person who is signed in. The task may still be in
// progress when it returns (closing.Tasks.Start).
func (p *Pages) start(r *http.Request, d closing.Decision) (closing.Task, error) {
	who := auth.IdentityOf(r.Context())
	d.By = who.Name
	person := closing.Person{Name: who.Name, Credential: "session", Address: who.Address, RequestID: auth.NewRequestID()}

	defer p.logs.Forget() // pages must not show the log as it was before
	ctx, cancel := context.WithTimeout(r.Context(), p.taskAnswer)
	defer cancel()
	return p.tasks.Start(ctx, person, d)
}

// refusalOf is a refusal of the books as the client sees it. Any other error is returned as it is.
func refusalOf(err error) error {
	if !closing.IsRefusal(err) {
		return err
	}
	return delivery.Refuse(delivery.CodeValidationFailed, "Nothing was done: %s.", err)
}

// writeData answers in the service's envelope.
func writeData(w http.ResponseWriter, status int, data any) error {
	text, err := json.Marshal(map[string]any{"success": true, "data": data})
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}

	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have gone
	return nil
}
