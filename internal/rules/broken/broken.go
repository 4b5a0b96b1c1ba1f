// Package broken says which rule of the contract a program is to break. Only the defects of
// internal/rules/testdata ask it, which no program that is shipped has in it.
package broken

import (
	"bytes"
	"os"
	"strings"
)

// Variable is the environment variable that names the rule.
const Variable = "BROKEN_RULE"

// Rule is the id of the rule to be broken, empty when all are kept.
var Rule = os.Getenv(Variable)

// Text returns the text with all of one part replaced by another. It is for texts that a program has
// made, such as an answer.
func Text(text []byte, part, by string) []byte {
	return bytes.ReplaceAll(text, []byte(part), []byte(by))
}

// Statement returns a statement of SQL with one part replaced by another. A part that it has not is a
// panic, so that a defect which changes nothing is not taken for one that no test has found.
func Statement(text, part, by string) string {
	if !strings.Contains(text, part) {
		panic("the statement has no " + part)
	}
	return strings.ReplaceAll(text, part, by)
}
