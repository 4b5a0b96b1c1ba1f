package auth

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"vendorapi/internal/delivery"
)

// unavailableFor is how long a client waits for Redis or ClickHouse.
const unavailableFor = 2 * time.Second

// Explain is err as the client may see it: a *delivery.Error in its chain as it is,
// an unavailable Redis or ClickHouse as SERVICE_UNAVAILABLE, and anything else
// without detail. The last two are logged under a request id. It sets the headers of a
// refusal; nothing of the answer may have been written.
func Explain(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) (e *delivery.Error, requestID string) {
	h := w.Header()
	if !errors.As(err, &e) {
		requestID = fmt.Sprintf("%016x", rand.Uint64())
		h.Set("X-Request-Id", requestID)
		log = log.With("request_id", requestID, "path", r.URL.Path, "error", err)
		e = delivery.Refuse(delivery.CodeInternal, "something went wrong on our side; quote the request id")
		switch {
		case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
			log.Debug("the client has gone")
		case errors.Is(err, delivery.ErrUnavailable):
			log.Warn("unavailable")
			e = &delivery.Error{Code: delivery.CodeServiceUnavailable, RetryAfter: unavailableFor,
				Message: "the service cannot answer right now; sending the same request again is safe"}
		default:
			log.Error("request failed")
		}
	}
	if wait := WaitSeconds(e); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return e, requestID
}

// RefusalData is the data of a refusal in the service's envelope (design section 9).
type RefusalData struct {
	ErrorCode         delivery.Code         `json:"errorCode"`
	RetryAfterSeconds int64                 `json:"retryAfterSeconds,omitempty"`
	Fields            []delivery.FieldError `json:"fields,omitempty"`
	RequestID         string                `json:"requestId,omitempty"`
}

// Refuse answers an error in the service's envelope (spec, "Response envelope"), with
// WWW-Authenticate and the headers of Explain.
func Refuse(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e, requestID := Explain(w, r, log, err)
	body, err := json.Marshal(struct {
		Success bool        `json:"success"`
		Message string      `json:"message"`
		Data    RefusalData `json:"data"`
	}{Message: e.Message, Data: RefusalData{e.Code, WaitSeconds(e), e.Fields, requestID}})
	if err != nil {
		log.Error("encode a refusal", "error", err)
	}
	h, status := w.Header(), e.Code.HTTPStatus()
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may have gone
}

// WaitSeconds is how long the client should wait, rounded up, at least 1 of a 429; 0: in vain.
func WaitSeconds(e *delivery.Error) int64 {
	wait := int64((e.RetryAfter + time.Second - 1) / time.Second)
	if e.Code == delivery.CodeRateLimited {
		wait = max(wait, 1)
	}
	return wait
}

//go:embed page/*
var files embed.FS

var templates = template.Must(template.ParseFS(files, "page/*.html"))

type page struct {
	Words                    map[string]string // the texts in one language, by name
	User, Next               string            // what was typed, and where to go from there
	Alert                    string            // why signing in did not work
	Asked                    bool              // a page was asked for without a session
	Said, Message, RequestID string            // of a refusal
}

var texts = func() (all map[string]map[string]string) {
	content, err := files.ReadFile("page/words.json")
	if err == nil {
		err = json.Unmarshal(content, &all)
	}
	if err != nil {
		panic(err)
	}
	return all
}()

var languages = language.NewMatcher([]language.Tag{language.English, language.Turkish})

// Language chooses "en" or "tr" by Accept-Language; English when it asks for neither.
func Language(r *http.Request) string {
	asked := r.Header.Get("Accept-Language")
	if _, i := language.MatchStrings(languages, asked); i == 1 && len(asked) <= 512 { // no browser's is longer
		return "tr"
	}
	return "en"
}

func (g *Gate) refuseSignIn(w http.ResponseWriter, r *http.Request, err error, p page) {
	e, _ := Explain(w, r, g.log, err)
	text := texts[Language(r)]
	switch e.Code {
	case delivery.CodeRateLimited:
		p.Alert = fmt.Sprintf(text["Throttled"], WaitSeconds(e))
	case delivery.CodeServiceUnavailable:
		p.Alert = fmt.Sprintf(text["Busy"], WaitSeconds(e))
	default:
		p.Alert = text["Wrong"]
	}
	g.write(w, r, e.Code.HTTPStatus(), "login.html", p)
}

func (g *Gate) refusePage(w http.ResponseWriter, r *http.Request, err error) {
	e, requestID := Explain(w, r, g.log, err)
	said := "Failed"
	switch e.Code.HTTPStatus() {
	case http.StatusForbidden, http.StatusUnauthorized:
		said = "Forbidden"
	case http.StatusServiceUnavailable:
		said = "Unavailable"
	}
	g.write(w, r, e.Code.HTTPStatus(), "refusal.html", page{Said: texts[Language(r)][said], Message: e.Message, RequestID: requestID})
}

// write allows what these pages need, whatever the handler's own policy.
func (g *Gate) write(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	p.Words, p.User, p.Next = texts[Language(r)], strings.ToValidUTF8(p.User, ""), strings.ToValidUTF8(p.Next, "")
	w.Header().Set("Content-Security-Policy", PolicyPage)
	w.Header().Add("Vary", "Accept-Language")
	if err := Render(w, status, templates, name, p); err != nil {
		Refuse(w, r, g.log, err)
	}
}

// Render answers with a template. One that fails is an error, and not half a page.
func Render(w http.ResponseWriter, status int, set *template.Template, name string, data any) error {
	var body bytes.Buffer
	if err := set.ExecuteTemplate(&body, name, data); err != nil {
		return fmt.Errorf("render %s: %w", name, err)
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client may have gone
	return nil
}

// WantsPage reports whether a browser navigates: nothing else names text/html.
func WantsPage(r *http.Request) bool { return accepts(r, "Accept", "text/html") }

// AcceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3): what is not named is not wanted.
func AcceptsGzip(r *http.Request) bool { return accepts(r, "Accept-Encoding", "gzip", "x-gzip", "*") }

// accepts reports whether the first of the values that the header names has a quality above 0.
func accepts(r *http.Request, header string, values ...string) bool {
	qualities := map[string]float64{}
	for part := range strings.SplitSeq(strings.Join(r.Header.Values(header), ","), ",") {
		if name, parameters, err := mime.ParseMediaType(part); err == nil {
			quality, _ := strconv.ParseFloat(cmp.Or(parameters["q"], "1"), 64) // 0 for what is no number
			qualities[name] = max(qualities[name], quality)
		}
	}
	for _, value := range values {
		if quality, named := qualities[value]; named {
			return quality > 0
		}
	}
	return false
}
