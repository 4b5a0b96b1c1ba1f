package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// documents are the texts with the rules, in the order of the table.
var documents = []string{"delivery-vendor-api-v1.md", "decisions.md"}

// form is how a document states a rule.
type form int

const (
	row form = iota
	numbered
	bullet
	sentence
)

// rule is one thing that a document says.
type rule struct {
	id, text string
	form     form
	document string
	section  string // the heading above it, as it is written
}

func readDocuments(folder string) (rules []rule, err error) {
	seen := map[string]string{}
	for _, name := range documents {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		for _, r := range parseDocument(string(content)) {
			if other, twice := seen[r.id]; twice {
				return nil, fmt.Errorf("%s: %s is the id of %q and of %q", name, r.id, other, r.text)
			}
			seen[r.id], r.document = r.text, name
			rules = append(rules, r)
		}
	}
	return rules, nil
}

// reader reads the subset of Markdown that the documents are written in: headings,
// tables, lists of one level and paragraphs of one or more lines.
type reader struct {
	rules   []rule
	taken   map[string]bool
	heading string
	lead    string   // what a paragraph that ends with a colon says of the block below it
	columns []string // of the table that is being read
	block   []string // the lines of the paragraph or item that is being read
	form    form     // of block
	key     string   // of block, where it is numbered
}

var (
	headingLine = regexp.MustCompile(`^#{1,4} +(.+)$`)
	itemLine    = regexp.MustCompile(`^(?:(-)|([0-9]+)\.) +(.+)$`)
	rulerLine   = regexp.MustCompile(`^\|[-:| ]+\|?$`)
)

// parseDocument never fails: what it cannot place is a sentence.
func parseDocument(text string) []rule {
	p := &reader{taken: map[string]bool{}}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			p.flush()
		} else if !fenced {
			p.line(line)
		}
	}
	p.flush()
	return p.rules
}

func (p *reader) line(line string) {
	if !strings.HasPrefix(line, "|") {
		p.columns = nil
	}
	switch heading, item := headingLine.FindStringSubmatch(line), itemLine.FindStringSubmatch(line); {
	case line == "":
		p.flush()
	case heading != nil:
		p.flush()
		p.heading, p.lead = heading[1], ""
		if strings.HasPrefix(line, "# ") {
			p.heading = "Introduction" // what stands between the title and the first section
		}
	case strings.HasPrefix(line, "|"):
		p.flush()
		p.cells(line)
	case item != nil:
		p.flush()
		p.form, p.key, p.block = bullet, item[2], []string{item[3]}
		if item[1] == "" {
			p.form = numbered
		}
	default:
		if len(p.block) == 0 {
			p.form = sentence
		}
		p.block = append(p.block, strings.TrimSpace(line))
	}
}

// cells reads a line of a table. A table of errors is known by their codes, one of
// moves, with the columns From and To, by both; any other by its first cells.
func (p *reader) cells(line string) {
	if rulerLine.MatchString(line) {
		return
	}
	cells := splitCells(line)
	if p.columns == nil {
		p.columns = cells
		return
	}
	key, said := cells[0], []string{cells[0]}
	if i := slices.Index(p.columns, "errorCode"); i > 0 && i < len(cells) {
		key = cells[i]
	}
	for i, cell := range cells {
		column := ""
		if i < len(p.columns) {
			column = p.columns[i]
		}
		if i > 0 && column == "To" && p.columns[0] == "From" {
			key += " to " + cell
		}
		if i > 0 && cell != "" {
			said = append(said, strings.TrimSpace(column+" "+cell))
		}
	}
	p.add(row, slug(key), strings.Join(said, "; "))
}

func splitCells(line string) (cells []string) {
	line = strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|")
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, strings.TrimSpace(cell))
	}
	return cells
}

// flush ends the paragraph or item that is being read.
func (p *reader) flush() {
	if len(p.block) == 0 {
		return
	}
	text := strings.Join(p.block, " ")
	p.block = nil
	switch p.form {
	case numbered:
		p.add(numbered, p.key, text)
	case bullet:
		p.addWords(bullet, text)
	default:
		p.lead = ""
		for _, s := range sentences(text) {
			if strings.HasSuffix(s, ":") {
				p.lead = firstWords(s, 2)
				continue
			}
			p.addWords(sentence, s)
		}
	}
}

// addWords adds a rule that is known by its first words, as many as it takes to
// tell it from the others; an endpoint in front names it alone.
func (p *reader) addWords(f form, text string) {
	if code, _, closed := strings.Cut(strings.TrimPrefix(text, "`"), "`"); closed && strings.HasPrefix(text, "`") {
		if key := slug(code); key != "" && !p.taken[p.id(key)] {
			p.add(f, key, text)
			return
		}
	}
	n, total := 5, len(strings.Fields(text))
	for n < total && p.taken[p.id(firstWords(text, n))] {
		n++
	}
	p.add(f, firstWords(text, n), text)
}

func (p *reader) id(key string) string {
	parts := []string{slug(strings.ReplaceAll(p.heading, "{base_url}/api/vendor/v1", ""))}
	if p.lead != "" {
		parts = append(parts, p.lead)
	}
	return strings.Join(append(parts, key), "/")
}

func (p *reader) add(f form, key, text string) {
	id := p.id(key)
	p.taken[id] = true
	p.rules = append(p.rules, rule{id: id, text: text, form: f, section: p.heading})
}

// sentences cuts where a full stop is followed by code, a number, or a word with a
// capital in it, such as orderId.
func sentences(text string) (cut []string) {
	start, code := 0, false
	for i := range len(text) {
		if text[i] == '`' {
			code = !code
		}
		if code || text[i] != '.' || i+2 >= len(text) || text[i+1] != ' ' {
			continue
		}
		next, _, _ := strings.Cut(text[i+2:], " ")
		if next != "" && (next[0] == '`' || next[0] >= '0' && next[0] <= '9' || strings.ContainsFunc(next, unicode.IsUpper)) {
			cut = append(cut, text[start:i+1])
			start = i + 2
		}
	}
	return append(cut, text[start:])
}

// longestKey is where a key of words is cut, at a word: code may be long.
const longestKey = 60

func firstWords(text string, n int) string {
	words := strings.Fields(text)
	key := slug(strings.Join(words[:min(n, len(words))], " "))
	if len(key) > longestKey {
		if end := strings.LastIndexByte(key[:longestKey], '-'); end > 0 {
			key = key[:end]
		}
	}
	return key
}

// slug writes a key the way it is typed. Names of fields, codes and variables keep
// their letters, words are in lower case: orderId, errors/DUPLICATE_ORDER, phone.
func slug(text string) string {
	text = strings.TrimSpace(strings.ReplaceAll(text, "`", ""))
	if number, rest, cut := strings.Cut(text, ". "); cut {
		if _, err := strconv.Atoi(number); err == nil { // "9. Decisions"
			text = rest
		}
	}
	if strings.ContainsRune(text, ' ') || text == capitalised(text) {
		text = strings.ToLower(text)
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '_', r == '.':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-.")
}

// capitalised is the text with only its first letter in upper case.
func capitalised(text string) string {
	runes := []rune(strings.ToLower(text))
	if len(runes) > 0 {
		runes[0] = unicode.ToUpper(runes[0])
	}
	return string(runes)
}
