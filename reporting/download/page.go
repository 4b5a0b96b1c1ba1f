package download

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"time"

	"vendorapi/reporting/access"
	"vendorapi/reporting/reports"
)

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.ParseFS(pageFiles, "page/reports.html"))

// Page serves the list of reports with its filters at /, for browsers of those
// with the role finance, and its stylesheet at /reports.css. It works without
// scripts: each button sends the one form to its own download.
func (d *Downloads) Page(g *access.Gate) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", g.Require(http.HandlerFunc(d.page), access.Finance))
	mux.HandleFunc("GET /reports.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, pageFiles, "page/reports.css")
	})
	return access.Protect(access.PolicyPage, mux)
}

func (d *Downloads) page(w http.ResponseWriter, r *http.Request) {
	period, err := reports.Values{}.Parse(time.Now()) // what a download without a period means
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	who := access.IdentityOf(r.Context())
	var body bytes.Buffer
	err = pageTemplate.Execute(&body, struct {
		From, To, User, CSRF string
		Reports              []*reports.Report
	}{period.From.String(), period.To.String(), who.Name, who.CSRF, reports.All()})
	if err != nil {
		d.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes()) // the asker may have gone
}
