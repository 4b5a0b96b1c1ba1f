// Package layout is what all pages of the panel have in common: the layout with
// its navigation, stylesheet and scripts, how times, counts and money are
// written, charts, and what a page says when something was done or refused.
//
// A package of pages embeds its templates, has them parsed together with the
// layout, and registers its handlers by role:
//
//	//go:embed page/*.html
//	var files embed.FS
//
//	pages, err := f.Parse(files, frame.Done{"suspended": "The account is suspended."})
//	f.Handle(mux, "GET /accounts", access.Operator, func(w http.ResponseWriter, r *http.Request) error {
//		return pages.Show(w, r, "accounts", frame.View{Title: "Accounts", Data: …})
//	})
//
// Each template that is shown as a page defines its content under the page's
// name; what the layout and every content template gets is a *Page, whose Data
// is the view's. A form that changes something carries
//
//	{{template "csrf" .}}
//
// and its handler answers with Redirect, or, refused, with Show and View.Refused,
// so that the reader sees the form again with what was typed and why it was
// refused. An error that a handler returns becomes a page of its own.
//
// Everything works without scripts but charts, whose figures stand in a table
// below, and what refreshes itself. Nothing is loaded from elsewhere: htmx and
// Chart.js lie in assets/vendor as their authors built them, see
// assets/vendor/README.md.
//
// It refuses to know what is on a page, and who may see it (package access).
package layout
