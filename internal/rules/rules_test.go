// Package rules holds the tests against the contract: every row of every table,
// every item and every sentence of the documents in configs/spec is a rule with an
// id, and at least one test of the gate says in a directive, right above it or at
// the line inside it that does, that it holds the rule:
//
//	//rule:limits/post-orders errors/RATE_LIMITED
//	func TestOrderLimits_HoldExactly(t *testing.T) {
//
// `go test -v ./internal/rules` prints each rule with its tests. Whether a test would
// fail if its rule were broken, who writes the directive has tried.
package rules

import (
	"go/build"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// asides state no rule: they say what a document is, point to another place, or
// stand for what the specification leaves open and decisions.md decides.
var asides = strings.Fields(`
	introduction/this-single-document-covers-the introduction/conventions-base_url-is-the-service introduction/placeholders-such-as-order_id-stand
	introduction/what-the-specification-delivery-vendor-api-v1.md-leaves-open introduction/comments-in-the-code-cite introduction/every-item-here-is-a
	what-the-service-does/the-service-lets-a-point-of-sale webhook-receiver-implemented-by-the-vendor/see-events
	store/which-store-fields-are-required store-states/transitions-into-other-store-states order-states/what-moves-an-order-to
	post-orders-orderid-cancel/request-and-response-bodies-not webhook-receiver-implemented-by-the-vendor/how-the-url-is-registered
	event-types/field-names-of-the-store errors/the-complete-list-of-error
	versioning/v1-is-the-first-version versioning/definition-of-breaking-change-and`)

func TestRules_AreHeldByTheGate(t *testing.T) {
	held, long := directives(t)
	known := map[string]bool{}
	for _, document := range []string{"delivery-vendor-api-v1.md", "decisions.md"} {
		text, err := os.ReadFile(filepath.Join("../../configs/spec", document))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range parse(string(text)) {
			if known[r.id] {
				t.Errorf("%s is the id of two rules", r.id)
			}
			known[r.id] = true
			if aside := slices.Contains(asides, r.id); aside != (len(held[r.id]) == 0) {
				t.Errorf("%s: held by %v, and only by long tests %v; an aside: %v\n\t%s", r.id, held[r.id], long[r.id], aside, r.text)
			}
			t.Logf("%s: %s\n\t%s", r.id, r.text, strings.Join(append(held[r.id], long[r.id]...), "\n\t"))
		}
	}
	for _, id := range slices.Concat(asides, slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(long))) {
		if !known[id] {
			t.Errorf("%s, of %v, is no rule", id, append(held[id], long[id]...))
		}
	}
}

var testLine = regexp.MustCompile(`^func ((?:Test|Fuzz)[A-Z_]\w*)\(`)

// directives are the tests that hold a rule: those of the gate and those in files
// that it does not build.
func directives(t *testing.T) (held, long map[string][]string) {
	held, long = map[string][]string{}, map[string][]string{}
	walk := func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		into := long
		if gate, err := build.Default.MatchFile(filepath.Dir(path), e.Name()); err != nil {
			return err
		} else if gate {
			into = held
		}
		test, waiting := "", []string(nil)
		for line := range strings.Lines(string(source)) {
			found := testLine.FindStringSubmatch(line)
			ids, directive := strings.CutPrefix(strings.TrimSpace(line), "//rule:")
			switch {
			case found != nil:
				test = strings.TrimPrefix(path, "../../") + " " + found[1]
			case strings.HasPrefix(line, "}"):
				test = ""
			case directive:
				waiting = append(waiting, strings.Fields(ids)...)
			case test == "" && len(waiting) > 0 && !strings.HasPrefix(line, "//"):
				t.Errorf("%s: %v stand on no test", path, waiting)
				waiting = nil
			}
			if test != "" {
				for _, id := range waiting {
					into[id] = append(into[id], test)
				}
				waiting = nil
			}
		}
		return nil
	}
	if err := filepath.WalkDir("../..", walk); err != nil {
		t.Fatal(err)
	}
	return held, long
}

type rule struct{ id, text string }

var (
	headingLine = regexp.MustCompile(`^(#{1,4}) +(.+)$`)
	itemLine    = regexp.MustCompile(`^(?:(-)|([0-9]+)\.) +(.+)$`)
	rulerLine   = regexp.MustCompile(`^\|[-:| ]+\|?$`)
	sentenceEnd = regexp.MustCompile("\\. (?:[`0-9]|[^ ]*\\p{Lu})") // a word with a capital, such as orderId, begins one, too
	numberedKey = regexp.MustCompile(`^[0-9]+\. `)
)

// parse reads the subset of Markdown that the documents are written in. A row is
// known by its first cell (in tables of errors by the code, of moves by from and
// to), a numbered item by its number, anything else by its first words.
func parse(text string) (rules []rule) {
	var heading, lead, block, key string // lead: what a paragraph with a colon says of the block below it
	var columns []string
	taken := map[string]bool{}
	idOf := func(key string) string {
		parts := []string{slug(strings.ReplaceAll(heading, "{base_url}/api/vendor/v1", "")), lead, key}
		return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "/")
	}
	add := func(key, text string) {
		taken[idOf(key)] = true
		rules = append(rules, rule{idOf(key), text})
	}
	addWords := func(text string) {
		if parts := strings.SplitN(text, "`", 3); len(parts) == 3 && parts[0] == "" && slug(parts[1]) != "" && !taken[idOf(slug(parts[1]))] {
			add(slug(parts[1]), text)
			return
		}
		n := 5
		for n < len(strings.Fields(text)) && taken[idOf(firstWords(text, n))] {
			n++
		}
		add(firstWords(text, n), text)
	}
	flush := func() {
		switch said := strings.TrimSpace(block); {
		case said == "":
		case key == "-":
			addWords(said)
		case key != "":
			add(key, said)
		default:
			lead = ""
			for _, s := range sentences(said) {
				if strings.HasSuffix(s, ":") {
					lead = firstWords(s, 2)
				} else {
					addWords(s)
				}
			}
		}
		block, key = "", ""
	}
	row := func(line string) {
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if columns == nil {
			columns = cells
			return
		}
		key := cells[0]
		if i := slices.Index(columns, "errorCode"); i > 0 {
			key = cells[i]
		} else if i := slices.Index(columns, "To"); columns[0] == "From" && i > 0 {
			key += " to " + cells[i]
		}
		add(slug(key), strings.Join(cells, " | "))
	}
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		if !strings.HasPrefix(line, "|") {
			columns = nil
		}
		switch item := itemLine.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "```"):
			flush()
			fenced = !fenced
		case fenced:
		case line == "":
			flush()
		case headingLine.MatchString(line):
			flush()
			found := headingLine.FindStringSubmatch(line)
			heading, lead = found[2], ""
			if found[1] == "#" {
				heading = "Introduction"
			}
		case strings.HasPrefix(line, "|"):
			flush()
			if !rulerLine.MatchString(line) {
				row(line)
			}
		case item != nil:
			flush()
			key, block = item[1]+item[2], item[3]
		default:
			block += " " + strings.TrimSpace(line)
		}
	}
	flush()
	return rules
}

// sentences cuts a paragraph, but not within code.
func sentences(text string) (cut []string) {
	start := 0
	for i := range len(text) {
		end := sentenceEnd.FindStringIndex(text[i:])
		if end != nil && end[0] == 0 && strings.Count(text[:i], "`")%2 == 0 {
			cut = append(cut, text[start:i+1])
			start = i + 2
		}
	}
	return append(cut, text[start:])
}

// firstWords is a key of at most 60 bytes, cut at a word.
func firstWords(text string, n int) string {
	words := strings.Fields(text)
	key := slug(strings.Join(words[:min(n, len(words))], " "))
	if len(key) > 60 {
		key = key[:strings.LastIndexByte(key[:60], '-')]
	}
	return key
}

// slug writes a key the way it is typed: names of fields, codes and variables keep
// their letters, words are in lower case.
func slug(text string) string {
	text = strings.TrimSpace(strings.ReplaceAll(text, "`", ""))
	text = numberedKey.ReplaceAllString(text, "")
	if first, rest := strings.ToUpper(text[:min(1, len(text))]), text[min(1, len(text)):]; strings.Contains(text, " ") || text == first+strings.ToLower(rest) {
		text = strings.ToLower(text)
	}
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.'
	})
	return strings.Trim(strings.Join(words, "-"), "-.")
}
