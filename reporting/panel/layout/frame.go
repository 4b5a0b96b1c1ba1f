package layout

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"

	"vendorapi/reporting/panel/auth"
	"vendorapi/reporting/panel/svgmap"
)

// Frame holds what is the same on every page. It is safe for concurrent use.
type Frame struct {
	gate        *auth.Gate
	log         *slog.Logger
	environment string
	assets      *assets
	layout      *template.Template
	own         *Pages
}

// New prepares the frame for an environment, "production" or "sandbox", which
// every page names.
func New(gate *auth.Gate, environment string, log *slog.Logger) (*Frame, error) {
	f := &Frame{gate: gate, log: log, environment: environment}
	var err error
	if f.assets, err = loadAssets(); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	if f.layout, err = template.New("").Funcs(f.functions()).ParseFS(files, "page/layout.html", "page/parts.html"); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	if _, err := svgmap.Define(f.layout); err != nil {
		return nil, fmt.Errorf("frame: %w", err)
	}
	if f.own, err = f.Parse(files, nil, "page/refusal.html"); err != nil {
		return nil, err
	}
	return f, nil
}

// Handler serves a page or an action. Unless it fails, it has answered; an error
// is answered by Refuse.
type Handler func(w http.ResponseWriter, r *http.Request) error

// Handle registers a handler for those with a role. The pattern is the mux's:
// "GET /accounts/{id}". Requests that may change something have shown the
// session's proof before serve runs, and their form has been parsed.
func (f *Frame) Handle(mux *http.ServeMux, pattern string, role auth.Role, serve Handler) {
	mux.Handle(pattern, f.Guard(serve, role))
}

// Guard is a handler behind the gate, for everybody with one of the roles;
// without roles, for everybody who is somebody. A program's token reads what its
// role may see and changes nothing: for that the gateway's log wants a person.
func (f *Frame) Guard(serve Handler, roles ...auth.Role) http.Handler {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := auth.IdentityOf(r.Context())
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		var err error = errToken
		if reads || who.BySession() {
			err = serve(w, r)
		}
		if err != nil {
			f.Refuse(w, r, err)
		}
	})
	return auth.Protect(auth.PolicyScripts, f.gate.Require(answer, roles...))
}

// section is an entry of the navigation.
type section struct {
	Path, Name, Icon string
	role             auth.Role
	// Current: the page that is shown lies here.
	Current bool
}

// sections are the navigation, in its order.
var sections = []section{
	{Path: "/overview", Name: "Overview", Icon: "overview", role: auth.Operator},
	{Path: "/orders", Name: "Orders", Icon: "orders", role: auth.Operator},
	{Path: "/webhooks", Name: "Webhooks", Icon: "webhooks", role: auth.Operator},
	{Path: "/accounts", Name: "Accounts", Icon: "accounts", role: auth.Operator},
	{Path: "/fleets", Name: "Fleets", Icon: "fleets", role: auth.Operator},
	{Path: "/stores", Name: "Stores", Icon: "stores", role: auth.Operator},
	{Path: "/refused-updates", Name: "Refused updates", Icon: "refused", role: auth.Operator},
	{Path: "/dead-letters", Name: "Dead letters", Icon: "letters", role: auth.Operator},
	{Path: "/payments", Name: "Payments", Icon: "payments", role: auth.Finance},
}

// Home leads from / to the first page that somebody may see.
func (f *Frame) Home() http.Handler {
	return f.Guard(func(w http.ResponseWriter, r *http.Request) error {
		who := auth.IdentityOf(r.Context())
		for _, s := range sections {
			if who.Roles.Include(s.role) {
				http.Redirect(w, r, s.Path, http.StatusSeeOther)
				return nil
			}
		}
		return errNoPages
	})
}
