package testenv

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// Answer is a response with its body read. Its checks fail the test of the client
// that asked, and return the answer for the next check.
type Answer struct {
	*http.Response
	T    testing.TB
	Text string
	tree *html.Node
}

// Want ends the test unless the answer has the status and all parts of text.
func (a *Answer) Want(status int, parts ...string) *Answer {
	a.T.Helper()
	if a.StatusCode != status {
		a.T.Fatalf("%s: %d, want %d: %v %s", a, a.StatusCode, status, a.Header, a.brief())
	}

	for _, part := range parts {
		if !strings.Contains(a.Text, part) {
			a.T.Fatalf("%s: no %q in %s", a, part, a.brief())
		}
	}

	return a
}

// Lacks wants none of the parts in the text.
func (a *Answer) Lacks(parts ...string) *Answer { a.T.Helper(); return a.compare(a.Text, false, parts) }

// Says wants each of the texts to be seen by a reader.
func (a *Answer) Says(texts ...string) *Answer {
	a.T.Helper()
	return a.compare(a.Words(), true, texts)
}

// Hides wants none of the texts to be seen by a reader.
func (a *Answer) Hides(texts ...string) *Answer {
	a.T.Helper()
	return a.compare(a.Words(), false, texts)
}

func (a *Answer) compare(content string, wanted bool, parts []string) *Answer {
	a.T.Helper()
	for _, part := range parts {
		if strings.Contains(content, part) != wanted {
			a.T.Errorf("%s: %q is there: %t, want %t: %.5000s", a, part, !wanted, wanted, content)
		}
	}
	return a
}

// Carries wants headers; an empty value is a header that is not there.
func (a *Answer) Carries(headers map[string]string) *Answer {
	a.T.Helper()
	for name, value := range headers {
		if got := a.Header.Get(name); got != value {
			a.T.Errorf("%s: %s is %q, want %q", a, name, got, value)
		}
	}
	return a
}

// Leads wants a redirect.
func (a *Answer) Leads(to string) *Answer {
	a.T.Helper()
	return a.Want(http.StatusSeeOther).Carries(map[string]string{"Location": to})
}

// Links wants each of the addresses to be linked.
func (a *Answer) Links(addresses ...string) *Answer {
	a.T.Helper()
	for _, address := range addresses {
		if !slices.ContainsFunc(All(a.Tree(), "a"), func(n *html.Node) bool { return Attribute(n, "href") == address }) {
			a.T.Errorf("%s: no link to %s", a, address)
		}
	}
	return a
}

// Link is the address of the first link with the text; empty: there is none.
func (a *Answer) Link(text string) string {
	for _, n := range All(a.Tree(), "a") {
		if Words(n) == text {
			return Attribute(n, "href")
		}
	}
	return ""
}

// Harmless wants no markup that acts, and addresses within the panel alone or
// below one of these. Scripts are files of the panel.
func (a *Answer) Harmless(below ...string) *Answer {
	a.T.Helper()
	for n := range a.Tree().Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if slices.Contains([]string{"img", "iframe", "object", "embed", "base", "style", "xss"}, n.Data) ||
			n.Data == "script" && (n.FirstChild != nil || !strings.Contains(Attribute(n, "src"), "assets/")) {
			a.T.Errorf("%s has <%s>", a, n.Data)
		}

		for _, at := range n.Attr {
			address := slices.Contains([]string{"href", "src", "action", "hx-get", "hx-post"}, at.Key)
			inside := slices.ContainsFunc(append([]string{"/", "#"}, below...), func(b string) bool { return strings.HasPrefix(at.Val, b) })
			if strings.HasPrefix(at.Key, "on") || at.Key == "style" || address && (!inside || at.Val == "/xss") {
				a.T.Errorf("%s has <%s %s=%q>", a, n.Data, at.Key, at.Val)
			}
		}
	}

	return a
}

// String names the request.
func (a *Answer) String() string { return a.Request.Method + " " + a.Request.URL.RequestURI() }

func (a *Answer) brief() string {
	main := a.Text[max(0, strings.Index(a.Text, "<main")):]
	return main[:min(len(main), 3000)]
}

// Tree is the parsed text.
func (a *Answer) Tree() *html.Node {
	a.T.Helper()
	if a.tree == nil {
		var err error
		a.tree, err = html.Parse(strings.NewReader(a.Text))
		if err != nil {
			a.T.Fatal(err)
		}
	}
	return a.tree
}

// Words are what a reader sees of the content, with single blanks.
func (a *Answer) Words() string {
	a.T.Helper()
	return words(a.Tree(), " ", "script", "head", "header")
}

// All are the elements of a name, of a class if one is given, in order; an empty
// name is any.
func All(below *html.Node, name string, class ...string) (found []*html.Node) {
	for n := range below.Descendants() {
		if n.Type == html.ElementNode && (name == "" || n.Data == name) &&
			(len(class) == 0 || strings.Contains(" "+Attribute(n, "class")+" ", " "+class[0]+" ")) {
			found = append(found, n)
		}
	}
	return found
}

// ByID is the element with the id; nil: there is none.
func (a *Answer) ByID(id string) *html.Node {
	a.T.Helper()
	for _, n := range All(a.Tree(), "") {
		if Attribute(n, "id") == id {
			return n
		}
	}
	return nil
}

// Attribute is empty where there is none.
func Attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// Has reports whether the element has the attribute.
func Has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

// Words is the text of an element, with single blanks.
func Words(n *html.Node) string { return words(n, "") }

// words puts a gap between texts, and leaves elements out.
func words(below *html.Node, gap string, without ...string) string {
	var b strings.Builder
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data + gap)
		}

		for c := range n.ChildNodes() {
			if c.Type != html.ElementNode || !slices.Contains(without, c.Data) {
				walk(c)
			}
		}
	}

	walk(below)

	return strings.Join(strings.Fields(b.String()), " ")
}

// Form is what a browser would send of the form that is posted to the action, by
// the button with the name and value; an empty name is any button.
func (a *Answer) Form(action, name, value string) url.Values {
	a.T.Helper()
	for _, form := range All(a.Tree(), "form") {
		if Attribute(form, "action") != action || Attribute(form, "method") != "post" {
			continue
		}

		for _, button := range All(form, "button") {
			if name == "" || Attribute(button, "name") == name && Attribute(button, "value") == value {
				sent := Fields(form)
				if name != "" {
					sent.Set(name, value)
				}
				return sent
			}
		}
	}

	a.T.Fatalf("%s has no form for %s with %s=%s: %s", a, action, name, value, a.brief())

	return nil
}

// Fields are what stands in a form.
func Fields(form *html.Node) url.Values {
	sent := url.Values{}
	for _, input := range All(form, "input") {
		sent.Add(Attribute(input, "name"), Attribute(input, "value"))
	}

	for _, area := range All(form, "textarea") {
		content := ""
		if area.FirstChild != nil {
			content = area.FirstChild.Data
		}
		sent.Add(Attribute(area, "name"), content)
	}

	for _, choice := range All(form, "select") {
		for i, option := range All(choice, "option") {
			if i == 0 || Has(option, "selected") {
				sent.Set(Attribute(choice, "name"), Attribute(option, "value"))
			}
		}
	}

	return sent
}

// Value is what stands in a field of the first form that has it.
func (a *Answer) Value(field string) string {
	a.T.Helper()
	for _, form := range All(a.Tree(), "form") {
		if sent := Fields(form); sent.Has(field) {
			return sent.Get(field)
		}
	}

	a.T.Fatalf("%s has no field %s", a, field)
	return ""
}
