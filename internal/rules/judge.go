package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// judge holds both sides against each other.
func judge(rules []rule, asides map[string]string, tests []heldBy) error {
	var faults []error
	known, held := map[string]rule{}, map[string]bool{}
	for _, r := range rules {
		known[r.id] = r
	}
	for _, t := range tests {
		for i, id := range t.rules {
			held[id] = true
			if _, is := known[id]; !is {
				faults = append(faults, fmt.Errorf("%s: %s names %s, which is no rule", t.file, t.name, id))
			}
			if slices.Contains(t.rules[:i], id) {
				faults = append(faults, fmt.Errorf("%s: %s names %s twice", t.file, t.name, id))
			}
		}
	}
	for _, r := range rules {
		_, aside := asides[r.id]
		switch {
		case aside && held[r.id]:
			faults = append(faults, fmt.Errorf("%s is said to state no rule, and a test holds it", r.id))
		case !aside && !held[r.id]:
			faults = append(faults, fmt.Errorf("no test holds %s: %s", r.id, r.text))
		}
	}
	for id, why := range asides {
		r, is := known[id]
		switch {
		case !is:
			faults = append(faults, fmt.Errorf("%s is said to state no rule, and is not there", id))
		case r.form == row || r.form == numbered:
			faults = append(faults, fmt.Errorf("%s: a row of a table or a numbered item is a rule", id))
		}
		for other := range strings.FieldsSeq(why) {
			other = strings.Trim(other, ",;")
			if _, is := known[other]; strings.Contains(other, "/") && !is {
				faults = append(faults, fmt.Errorf("%s: %s, where it is said to be decided, is no rule", id, other))
			}
		}
	}
	return errors.Join(faults...)
}

const head = `# Every rule and the tests that hold it

Made by ` + "`go run ./internal/rules -write`" + `; a test refuses a rule without a test, and a table
that is not current. Rules are what the [specification](delivery-vendor-api-v1.md) says and
what was [decided](decisions.md) where it leaves something open: every row of every table,
every numbered item and bullet, every sentence. ` + "`make test`" + ` runs all of these tests and
fails when one fails.
`

// render is the table. It names files and no lines, so that it changes only when
// rules or tests do.
func render(rules []rule, tests []heldBy) []byte {
	holders := map[string][]string{}
	for _, t := range tests {
		for _, id := range t.rules {
			holders[id] = append(holders[id], fmt.Sprintf("[%s](../../%s) (%s)", t.name, t.file, t.folder))
		}
	}
	var b bytes.Buffer
	b.WriteString(head)
	document, section := "", ""
	for _, r := range rules {
		if _, aside := asides[r.id]; aside {
			continue
		}
		if r.document != document {
			document, section = r.document, ""
			fmt.Fprintf(&b, "\n## %s\n", document)
		}
		if r.section != section {
			section = r.section
			fmt.Fprintf(&b, "\n### %s\n\n| rule | says | held by |\n|---|---|---|\n", section)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.id, short(r.text), strings.Join(holders[r.id], "<br>"))
	}
	b.WriteString("\n## What states no rule\n\nIntroductions, and what the specification leaves open.\n\n| text | why |\n|---|---|\n")
	for _, r := range rules {
		if why, aside := asides[r.id]; aside {
			fmt.Fprintf(&b, "| %s | %s |\n", short(r.text), why)
		}
	}
	return b.Bytes()
}

// shortLength is how much of a rule the table shows, in code points.
const shortLength = 160

// short is the beginning of a text, as a cell of a table.
func short(text string) string {
	if runes := []rune(text); len(runes) > shortLength {
		text = strings.TrimRight(string(runes[:shortLength]), " ")
		if strings.Count(text, "`")%2 == 1 {
			text += "`"
		}
		text += " …"
	}
	return strings.ReplaceAll(text, "|", `\|`)
}
