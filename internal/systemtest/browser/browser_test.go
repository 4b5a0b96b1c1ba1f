package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vendorapi/loadtest/chromium"
)

// policy is as strict as the panel's.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'"

const style = `body { color: #222; background: #fff; font: 16px/1.5 sans-serif; margin: 1rem }
a, button, input { min-height: 24px } :focus-visible { outline: 3px solid #06c }
.wide { width: 900px } .pale { color: #bbb } .hidden-focus:focus-visible { outline: none }`

// document is a sound page around content.
func document(content string) string {
	return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
		<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/style.css">
		</head><body><main><h1>A page</h1>` + content + `</main></body></html>`
}

// site serves pages by path, and the files that they load.
func site(t *testing.T, pages map[string]string) *httptest.Server {
	t.Helper()
	files := map[string]string{
		"/style.css": style, "/favicon.ico": "",
		"/error.js": "console.error('it went', 'wrong')",
		"/throw.js": "throw new Error('not caught')",
		"/alert.js": "alert('boo')",
		"/ask.js":   "if (confirm('Really?')) document.title = 'Yes'",
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		if page, ok := pages[r.URL.Path]; ok {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, page)
			return
		}
		file, ok := files[r.URL.Path]
		if !ok {
			http.Error(w, "nothing here", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", map[string]string{".css": "text/css", ".js": "text/javascript"}[filepath.Ext(r.URL.Path)])
		fmt.Fprint(w, file)
	}))
	t.Cleanup(server.Close)
	return server
}

// elsewhere is another host: the second address of loopback.
func elsewhere(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.NotFoundHandler()}}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// What a person would complain of is found, and nothing else.
func TestPage_FindsWhatIsWrong(t *testing.T) {
	b := Start(t)
	other := elsewhere(t)
	for name, c := range map[string]struct {
		content string
		clean   string // what Clean must find; empty: nothing
		usable  string // what Usable must find; empty: nothing
	}{
		"a sound page": {`<p>Text</p><form><label>Name <input name="n"></label> <button>Save</button></form>
			<table><caption>Orders</caption><tr><th scope="col">Order</th></tr><tr><td>A-1</td></tr></table>`, "", ""},
		"an inline script":            {`<script>document.title = 'owned'</script>`, "browser: Executing inline script violates", "inline style or script"},
		"an inline handler":           {`<p onclick="f()">Text</p>`, "browser: Executing inline event handler violates", "inline handler"},
		"an inline style":             {`<p style="color: red">Text</p>`, "browser: Applying inline style violates", "inline style or script"},
		"a script of another host":    {`<script src="` + other + `/x.js"></script>`, "another host was asked: " + other, ""},
		"a script that is missing":    {`<script src="/missing.js"></script>`, "answer: answered 404", ""},
		"an error in the console":     {`<script src="/error.js"></script>`, `console: "it went" "wrong"`, ""},
		"an exception":                {`<script src="/throw.js"></script>`, "exception: Uncaught Error: not caught", ""},
		"an alert":                    {`<script src="/alert.js"></script>`, "dialog: alert: boo", ""},
		"a field without a label":     {`<input name="n" placeholder="Name">`, "", "has no label"},
		"a button without a name":     {`<button></button>`, "", "button-name"},
		"a picture without a name":    {`<svg role="img" width="9" height="9"></svg>`, "", "svg-img-alt"},
		"an id twice":                 {`<p id="a">1</p><p id="a">2</p>`, "", "the id is there twice"},
		"a heading that skips":        {`<h3>Deep</h3>`, "", "a heading skips a rank"},
		"a table without scopes":      {`<table><tr><th>Order</th></tr><tr><td>A-1</td></tr></table>`, "", "a heading without scope"},
		"text that is hard to read":   {`<p class="pale">Text</p>`, "", "color-contrast"},
		"a page that is too wide":     {`<p class="wide">Text</p>`, "", "pixels wide on a screen of 390"},
		"a focus that is not shown":   {`<a href="/" class="hidden-focus">Home</a>`, "", "does not show that it has the focus"},
		"an order of tabs that jumps": {`<a href="/" tabindex="3">Home</a>`, "", "jumps the order of tabs"},
	} {
		t.Run(name, func(t *testing.T) {
			s := site(t, map[string]string{"/": document(c.content)})
			p := b.unjudged(t, s.URL)
			p.Visit("/", http.StatusOK)
			finds(t, "Usable", p.unusable(), c.usable)
			finds(t, "Clean", p.faults(), c.clean)
		})
	}
}

// unjudged is Open for a test that judges by itself.
func (b *Browser) unjudged(t *testing.T, origin string) *Page {
	t.Helper()
	tab, err := b.chromium.NewTab(origin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tab.Close)
	return &Page{&visit{tab: tab, host: strings.TrimPrefix(origin, "http://")}, t}
}

func finds(t *testing.T, what string, faults []string, want string) {
	t.Helper()
	if want == "" && len(faults) > 0 {
		t.Errorf("%s finds %q", what, faults)
	}
	if want != "" && !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, want) }) {
		t.Errorf("%s finds %q, not %q", what, faults, want)
	}
}

// Whole pages can lack what every page must have.
func TestUsable_FindsWhatAPageLacks(t *testing.T) {
	b := Start(t)
	s := site(t, map[string]string{"/": "<!doctype html><html><body><p>Text</p></body></html>"})
	p := b.unjudged(t, s.URL)
	p.Visit("/", http.StatusOK)
	faults := p.unusable()
	for _, want := range []string{"has no language", "has no title", "a phone would shrink the page", "0 headings of the first rank"} {
		finds(t, "Usable", faults, want)
	}
}

// One story: a visitor's steps, each from the page that the last one led to.
func TestPage_IsUsedAsPeopleDo(t *testing.T) {
	b := Start(t)
	var got string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, document(`<form method="post" action="/save"><label for="n">Name</label><input id="n" name="name" value="old">
			<label>Day <input type="date" name="day"></label>
			<label>City <select name="city"><option value="6">Ankara</option><option value="34">İstanbul</option></select></label>
			<label><input type="checkbox" name="sure"> Sure</label><button>Save</button></form>
			<a href="/file">Download</a> <a href="/refused">Refused</a> <a href="/ask">Ask</a>`))
	})
	mux.HandleFunc("POST /save", func(w http.ResponseWriter, r *http.Request) {
		got = fmt.Sprint(r.FormValue("name"), r.FormValue("day"), r.FormValue("city"), r.FormValue("sure"))
		http.Redirect(w, r, "/saved", http.StatusSeeOther)
	})
	mux.HandleFunc("GET /saved", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, document("<p>It is saved.</p>")) })
	mux.HandleFunc("GET /refused", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, document("<p>Not for you.</p>"))
	})
	mux.HandleFunc("GET /ask", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, document(`<script src="/ask.js"></script>`))
	})
	mux.HandleFunc("GET /ask.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, "if (confirm('Really?')) document.querySelector('h1').textContent = 'Yes'")
	})
	mux.HandleFunc("GET /file", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Disposition", `attachment; filename="orders.csv"`)
		fmt.Fprint(w, "a;b\n")
	})
	mux.HandleFunc("GET /favicon.ico", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		fmt.Fprint(w, style)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)

	p := b.Open(t, s.URL)
	p.Visit("/", http.StatusOK)
	if !p.Has("button", "Save") || p.Has("button", "Delete") {
		t.Error("Has finds the wrong elements")
	}
	p.Fill("Name", "Ayşe <Kaya>")
	p.Fill("Day", "2026-11-22")
	p.Fill("City", "İstanbul")
	p.Fill("Sure", "on")
	p.Press("Save")
	p.HasStatus(http.StatusOK)
	p.WaitText("It is saved.")
	if got != "Ayşe <Kaya>2026-11-2234on" || p.Location() != "/saved" {
		t.Errorf("sent %q, now at %s", got, p.Location())
	}
	p.Visit("/", http.StatusOK)
	file := p.Download("Download")
	if content, err := os.ReadFile(file); err != nil || string(content) != "a;b\n" || filepath.Base(file) != "orders.csv" {
		t.Errorf("%s: %q, %v", file, content, err)
	}
	p.Expect(http.StatusForbidden)
	p.Follow("Refused")
	p.HasStatus(http.StatusForbidden)
	p.Shows("Not for you.")
	p.Visit("/ask", http.StatusOK)
	p.WaitText("Yes")
	if asked := p.Confirmed(); !slices.Equal(asked, []string{"Really?"}) || len(p.Confirmed()) > 0 {
		t.Errorf("asked %q", asked)
	}
}

// Two tabs are two people: neither has the other's cookies.
func TestOpen_SharesNoCookies(t *testing.T) {
	b := Start(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := r.Cookie("seen")
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "1"})
		fmt.Fprintf(w, "known: %v, %s", err == nil, r.Header.Get("Accept-Language"))
	}))
	t.Cleanup(s.Close)
	first, second := b.Open(t, s.URL), b.Open(t, s.URL)
	first.Visit("/", http.StatusOK)
	first.Language("tr")
	first.Visit("/", http.StatusOK)
	first.Shows("known: true, tr")
	second.Visit("/", http.StatusOK)
	second.Shows("known: false, en-GB")
}

// After Stop no process and no folder of the browser is left.
func TestStart_LeavesNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	c, err := chromium.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	t.Setenv("CHROMIUM", "/no/such/browser")
	if _, err := chromium.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "make deps") {
		t.Errorf("started without a browser: %v", err)
	}
}
