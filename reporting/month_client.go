package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/closing"
	"vendorapi/reporting/panel/finance"
)

// panelClient is a person who has signed in to the running panel, as with a browser. Only the panel
// knows who may decide what: the command's own environment decides nothing.
type panelClient struct {
	address string // https://panel.example, without a slash at its end
	http    *http.Client
	cookies []*http.Cookie
	csrf    string // sent with each form: it proves that the person means it
	held    string // the seal of the hold at sign-in (finance.BooksView.Held); a decision about another one is refused
}

const (
	panelTimeout     = time.Minute // for one answer; a password waits for its turn for up to 50 s
	taskPollInterval = time.Second
	taskSilence      = 40 * time.Second // after which the panel's process counts as dead
	maxAnswerBytes   = 1 << 20
)

// address returns the URL at which people reach the panel: the setting panel.url, or the listener on this
// machine.
func (s *panelSettings) address() string {
	if s.URL != "" {
		return strings.TrimSuffix(s.URL, "/")
	}

	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return "http://" + s.Addr
	}

	ip := net.ParseIP(host)
	isEveryAddress := host == "" || (ip != nil && ip.IsUnspecified())
	if isEveryAddress {
		host = "127.0.0.1"
	}

	return "http://" + net.JoinHostPort(host, port)
}

// signIn signs a user in, and reads what decisions are sent with.
func signIn(ctx context.Context, address, user, password string) (*panelClient, error) {
	c := &panelClient{address: address, http: &http.Client{
		Timeout:       panelTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}

	resp, err := c.postForm(ctx, "/login", url.Values{"user": {user}, "password": {password}})
	if err != nil {
		return nil, err
	}

	_ = resp.Body.Close()

	switch resp.StatusCode {
	case http.StatusSeeOther:
	case http.StatusUnauthorized:
		return nil, errors.New("the panel refuses the user or the password")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil, fmt.Errorf("too many people sign in to the panel at the moment, or it does not work (%s): try again later", resp.Status)
	default:
		return nil, fmt.Errorf("%s answered %s: is it the panel (panel.url in reporting.yaml)?", c.address, resp.Status)
	}

	c.cookies = resp.Cookies()

	var books finance.BooksView
	if err := c.get(ctx, finance.BooksPath, &books); err != nil {
		return nil, err
	}

	c.csrf, c.held = books.CSRF, books.Held

	return c, nil
}

// signOut ends the session.
func (c *panelClient) signOut(ctx context.Context) error {
	resp, err := c.postForm(ctx, "/logout", url.Values{})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// get asks for a path, and reads the data of the answer.
func (c *panelClient) get(ctx context.Context, path string, data any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+path, nil)
	if err != nil {
		return fmt.Errorf("the panel's address: %w", err)
	}
	resp, err := c.send(r)
	if err != nil {
		return err
	}
	return c.readAnswer(resp, data)
}

// post sends a form, and reads the data of the answer.
func (c *panelClient) post(ctx context.Context, path string, form url.Values, data any) error {
	resp, err := c.postForm(ctx, path, form)
	if err != nil {
		return err
	}
	return c.readAnswer(resp, data)
}

// postForm sends a form. The caller closes the answer's body.
func (c *panelClient) postForm(ctx context.Context, path string, form url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.address+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("the panel's address: %w", err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-CSRF-Token", c.csrf)
	return c.send(r)
}

// send sends a request with the session's cookies, whatever the address is: on this machine the panel is
// reached without TLS even if its cookies are for TLS only.
func (c *panelClient) send(r *http.Request) (*http.Response, error) {
	for _, cookie := range c.cookies {
		r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	}

	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("the panel, which decides about months, does not answer (panel.url in reporting.yaml): %w", err)
	}
	return resp, nil
}

// readAnswer reads the data of an answer, and closes its body. The error is the panel's refusal if it is one.
func (c *panelClient) readAnswer(resp *http.Response, data any) error {
	defer func() { _ = resp.Body.Close() }()

	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("the panel's answer: %w", err)
	}

	var answer struct {
		Success bool            `json:"success"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}

	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%s answered %s, and no JSON: is it the panel?", c.address, resp.Status)
	}
	if !answer.Success {
		return answerError(answer.Message, answer.Data)
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		return fmt.Errorf("the panel's answer: %w", err)
	}

	return nil
}

// answerError is the panel's refusal, with the fields that it names.
func answerError(message string, data json.RawMessage) error {
	var details struct {
		Fields    []delivery.FieldError `json:"fields"`
		RequestID string                `json:"requestId"`
	}

	_ = json.Unmarshal(data, &details) // the message alone will do
	for _, f := range details.Fields {
		message += fmt.Sprintf(" (%s %s)", f.Field, f.Message)
	}

	if details.RequestID != "" {
		message += " (request " + details.RequestID + ")"
	}

	return errors.New(message)
}

// decide sends a decision, and waits until it is carried out. When ctx ends it returns an error, and the
// panel carries the decision out all the same.
func (c *panelClient) decide(ctx context.Context, d closing.Decision, progress func(string)) (*closing.Task, error) {
	values := url.Values{"note": {d.Note}, "held": {d.Held}}
	for _, id := range d.Orders {
		values.Add("order", id.String())
	}

	begun := &closing.Task{}
	if err := c.post(ctx, finance.DecisionPath(d), values, begun); err != nil {
		return nil, err
	}

	task, err := c.waitFor(ctx, begun, progress)
	if err != nil {
		return nil, err
	}

	switch {
	case task.Refusal != "":
		return nil, errors.New("nothing was done: " + task.Refusal)
	case task.Failure != "":
		return nil, errors.New(task.Failure + ": `reporting month status` shows whether it was done")
	}

	return task, nil
}

// waitFor asks for a task until it has ended. It returns an error when the panel's process shows no sign of
// life for taskSilence, when another decision has begun, or when ctx ends.
func (c *panelClient) waitFor(ctx context.Context, task *closing.Task, progress func(string)) (*closing.Task, error) {
	step := ""
	seenAt := time.Now() // when task.Seen last changed, by this process's clock
	for !task.HasEnded() {
		if task.Step != step {
			step = task.Step
			progress(step)
		}

		if time.Since(seenAt) > taskSilence {
			return nil, errors.New("the panel's process has died: `reporting month status` shows whether it was done, and it can be sent again if not")
		}

		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("it goes on in the panel, and `reporting month status` shows how far it has got: %w", ctx.Err())
		case <-time.After(taskPollInterval):
		}

		next := &closing.Task{}
		if err := c.get(ctx, finance.TaskPath, next); err != nil {
			return nil, err
		}
		if next.ID != task.ID {
			return nil, errors.New("another decision was begun since: `reporting month status` shows what became of this one")
		}

		if !next.Seen.Equal(task.Seen) {
			seenAt = time.Now()
		}

		task = next
	}

	return task, nil
}
