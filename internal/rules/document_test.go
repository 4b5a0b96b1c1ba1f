package main

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const someDocument = `# Some API

It answers JSON. It has ` + "`v1. And` in its path.\nTwo lines\nare one sentence." + `

## Limits

| Endpoint | Sustained |
|---|---|
| POST /orders | 600 per minute |
| ` + "`GET /orders/{id}`" + ` | 1 per 10 seconds |

Rules:

1. The first rule.
2. The second
   rule, of two lines.

Other constants:

| Constant | Value |
|---|---|
| Token lifetime | 3600 |

After a paragraph the lead is over. orderId is a word.

- ` + "`POST /accounts`" + ` makes one
- One two three four five six
- One two three four five seven

` + "```\n| no | table |\n1. no rule\n```" + `

### 9. Moves

| From | Trigger | To | Also |
|---|---|---|---|
| Searching | courier accepts | Assigned | |
| Searching | fleet gives up | Failed | event |

| HTTP status | errorCode |
|---|---|
| 409 | DUPLICATE_ORDER |
| 409 | STORE_NOT_CONFIGURED |
`

func TestParseDocument_GivesEveryRowItemAndSentenceAnID(t *testing.T) {
	want := []string{
		"introduction/it-answers-json: It answers JSON.",
		"introduction/it-has-v1.-and-in: It has `v1. And` in its path.",
		"introduction/two-lines-are-one-sentence: Two lines are one sentence.",
		"limits/post-orders: POST /orders; Sustained 600 per minute",
		"limits/get-orders-id: `GET /orders/{id}`; Sustained 1 per 10 seconds",
		"limits/rules/1: The first rule.",
		"limits/rules/2: The second rule, of two lines.",
		"limits/other-constants/token-lifetime: Token lifetime; Value 3600",
		"limits/after-a-paragraph-the-lead: After a paragraph the lead is over.",
		"limits/orderid-is-a-word: orderId is a word.",
		"limits/post-accounts: `POST /accounts` makes one",
		"limits/one-two-three-four-five: One two three four five six",
		"limits/one-two-three-four-five-seven: One two three four five seven",
		"moves/searching-to-assigned: Searching; Trigger courier accepts; To Assigned",
		"moves/searching-to-failed: Searching; Trigger fleet gives up; To Failed; Also event",
		"moves/DUPLICATE_ORDER: 409; errorCode DUPLICATE_ORDER",
		"moves/STORE_NOT_CONFIGURED: 409; errorCode STORE_NOT_CONFIGURED",
	}
	got := parseDocument(someDocument)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("lacks %s", want[i])
		case i >= len(want):
			t.Errorf("has %s: %s", got[i].id, got[i].text)
		case got[i].id+": "+got[i].text != want[i]:
			t.Errorf("got  %s: %s\nwant %s", got[i].id, got[i].text, want[i])
		}
	}
}

func TestParseDocument_KnowsTheForms(t *testing.T) {
	forms := map[form]int{}
	for _, r := range parseDocument(someDocument) {
		forms[r.form]++
	}
	if forms[row] != 7 || forms[numbered] != 2 || forms[bullet] != 3 || forms[sentence] != 5 {
		t.Errorf("%v", forms)
	}
}

func TestSlug_KeepsWhatIsTypedInCode(t *testing.T) {
	for text, want := range map[string]string{
		"Phone": "phone", "Searching": "searching", "PickingUp": "PickingUp", "orderId": "orderId", "DUPLICATE_ORDER": "DUPLICATE_ORDER",
		"X-Service-Event": "X-Service-Event", "`externalOrderId` length": "externalorderid-length", "recipient.name": "recipient.name",
		"PUT /stores/{id}": "put-stores-id", "any other": "any-other", "(none)": "none", "5. Private APIs": "private-apis", "Şube adı": "şube-adı",
		"": "", "…": "", "a  b--c.": "a-b-c",
	} {
		if got := slug(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestReadDocuments_RefusesTwoRulesOfOneID(t *testing.T) {
	folder := t.TempDir()
	for i, name := range documents {
		write(t, filepath.Join(folder, name), "## Same\n\n| Key | Says |\n|---|---|\n| one | "+strings.Repeat("x", i+1)+" |\n")
	}
	if _, err := readDocuments(folder); err == nil || !strings.Contains(err.Error(), "same/one") {
		t.Errorf("got %v", err)
	}
	if _, err := readDocuments(t.TempDir()); err == nil {
		t.Error("no documents, and no error")
	}
}

// FuzzParseDocument: whatever the text is, rules come out of it with ids that can
// be typed in a directive, and nothing that is said is lost from a sentence.
func FuzzParseDocument(f *testing.F) {
	f.Add(someDocument)
	f.Add("| From | To |\n|---|---|\n|\n| a |\n||||\n")
	f.Add("1. \n- \n#\n# `\n``. `A\n```\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseDocument(text) {
			if strings.ContainsFunc(r.id, func(c rune) bool { return c == ' ' || c == '\n' || c == '\t' }) {
				t.Errorf("the id %q of %q has a blank", r.id, r.text)
			}
			if utf8.ValidString(text) && (!utf8.ValidString(r.id) || !utf8.ValidString(r.text) || !utf8.ValidString(short(r.text))) {
				t.Errorf("%q: %q is broken", r.id, r.text)
			}
			if r.form == sentence && !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(r.text), " ")) {
				t.Errorf("%q does not stand in the text", r.text)
			}
		}
	})
}
