package operate

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
)

// tree is the parsed text.
func (a answer) tree() *html.Node {
	a.t.Helper()
	root, err := html.Parse(strings.NewReader(a.text))
	must(a.t, err)
	return root
}

// all lists the elements of a name.
func all(root *html.Node, name string) (found []*html.Node) {
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			found = append(found, n)
		}
	}
	return found
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

// words is the text of an element.
func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// form finds the form that is posted to this action, with the button of this name and
// value ("": any), and gives what a browser would send.
func (a answer) form(action, name, value string) url.Values {
	a.t.Helper()
	for _, form := range all(a.tree(), "form") {
		if attribute(form, "action") != action || attribute(form, "method") != "post" {
			continue
		}
		for _, button := range all(form, "button") {
			if name == "" || attribute(button, "name") == name && attribute(button, "value") == value {
				sent := fieldsIn(form)
				if name != "" {
					sent.Set(name, value)
				}
				return sent
			}
		}
	}
	a.t.Fatalf("%s has no form for %s with %s=%s: %s", a.Request.URL, action, name, value, a.brief())
	return nil
}

func fieldsIn(form *html.Node) url.Values {
	sent := url.Values{}
	for _, input := range all(form, "input") {
		sent.Add(attribute(input, "name"), attribute(input, "value"))
	}
	for _, area := range all(form, "textarea") {
		content := ""
		if area.FirstChild != nil {
			content = area.FirstChild.Data
		}
		sent.Add(attribute(area, "name"), content)
	}
	for _, choice := range all(form, "select") {
		for i, option := range all(choice, "option") {
			if i == 0 || has(option, "selected") {
				sent.Set(attribute(choice, "name"), attribute(option, "value"))
			}
		}
	}
	return sent
}

// submit opens a page, fills in one of its forms, and sends it.
func (b *browser) submit(page, action string, changes ...string) answer {
	b.Helper()
	form := b.get(page).want(200).form(action, "", "")
	for i := 0; i < len(changes); i += 2 {
		form.Set(changes[i], changes[i+1])
	}
	return b.post(action, form)
}

// press opens a page and presses one of its buttons.
func (b *browser) press(page, action, name, value string) answer {
	b.Helper()
	return b.post(action, b.get(page).want(200).form(action, name, value))
}

// fault is what stands beside a field; the field must be marked as wrong.
func (a answer) fault(field string) string {
	a.t.Helper()
	root := a.tree()
	for _, name := range []string{"input", "textarea", "select"} {
		for _, n := range all(root, name) {
			if attribute(n, "name") != field {
				continue
			}
			about := attribute(n, "aria-describedby")
			if attribute(n, "aria-invalid") != "true" || about == "" {
				return ""
			}
			for d := range root.Descendants() {
				if d.Type == html.ElementNode && attribute(d, "id") == about {
					return words(d)
				}
			}
		}
	}
	return ""
}

// value is what stands in a field.
func (a answer) value(field string) string {
	a.t.Helper()
	for _, form := range all(a.tree(), "form") {
		if sent := fieldsIn(form); sent.Has(field) {
			return sent.Get(field)
		}
	}
	a.t.Fatalf("%s has no field %s", a.Request.URL, field)
	return ""
}

// htmlNode is an element, for tests that look at one themselves.
type htmlNode = html.Node
