package finance

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// document is a parsed page.
type document struct {
	t    testing.TB
	root *html.Node
	size int
}

func parsed(t testing.TB, text string) *document {
	t.Helper()
	root, err := html.Parse(strings.NewReader(text))
	must(t, err)
	return &document{t: t, root: root, size: len(text)}
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func attributes(n *html.Node) map[string]string {
	found := map[string]string{}
	for _, a := range n.Attr {
		found[a.Key] = a.Val
	}
	return found
}

// all are the elements below a node of this name and class, in order; an empty
// name or class is any.
func all(below *html.Node, name, class string) (found []*html.Node) {
	for n := range below.Descendants() {
		if n.Type == html.ElementNode && (name == "" || n.Data == name) &&
			(class == "" || strings.Contains(" "+attribute(n, "class")+" ", " "+class+" ")) {
			found = append(found, n)
		}
	}
	return found
}

func text(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (d *document) byID(id string) *html.Node {
	for n := range d.root.Descendants() {
		if n.Type == html.ElementNode && attribute(n, "id") == id {
			return n
		}
	}
	return nil
}

// report is the table of the report; nil when there is none.
func (d *document) report() *html.Node {
	if tables := all(d.root, "table", "report"); len(tables) > 0 {
		return tables[0]
	}
	return nil
}

// rows are the texts of the table's body.
func (d *document) rows() (rows [][]string) {
	table := d.report()
	if table == nil {
		return nil
	}
	for _, tr := range all(all(table, "tbody", "")[0], "tr", "") {
		rows = append(rows, cellsOf(tr))
	}
	return rows
}

func cellsOf(tr *html.Node) (cells []string) {
	for n := range tr.ChildNodes() {
		if n.Type == html.ElementNode {
			cells = append(cells, text(n))
		}
	}
	return cells
}

// totals are the sums below the table, by the headings above them: the foot's
// first cell spans the columns before the sums.
func (d *document) totals() map[string]string {
	table, sums := d.report(), map[string]string{}
	if table == nil {
		return sums
	}
	headings := cellsOf(all(all(table, "thead", "")[0], "tr", "")[0])
	for _, foot := range all(table, "tfoot", "") {
		cells := cellsOf(all(foot, "tr", "")[0])[1:]
		span, err := strconv.Atoi(attribute(all(foot, "th", "")[0], "colspan"))
		if err != nil || span+len(cells) != len(headings) {
			d.t.Fatalf("a foot of %d columns and %d cells below %d headings", span, len(cells), len(headings))
		}
		for i, cell := range cells {
			if cell != "" {
				sums[headings[span+i]] = cell
			}
		}
	}
	return sums
}

// link is the address of the first link with this text.
func (d *document) link(name string) string {
	for _, a := range all(d.root, "a", "") {
		if text(a) == name {
			return attribute(a, "href")
		}
	}
	return ""
}

// chart are the figures of a chart, by label and then in the order of its
// series.
func (d *document) chart(id string) map[string][]string {
	figure := d.byID(id)
	if figure == nil {
		return nil
	}
	figures := map[string][]string{}
	for _, tr := range all(all(figure, "tbody", "")[0], "tr", "") {
		cells := cellsOf(tr)
		figures[cells[0]] = cells[1:]
	}
	return figures
}

// tile is the text of a tile by its name.
func (d *document) tile(name string) string {
	for _, tile := range all(d.root, "div", "tile") {
		if said := text(tile); strings.HasPrefix(said, name) {
			return strings.TrimSpace(strings.TrimPrefix(said, name))
		}
	}
	return ""
}
