package delivery

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of foreign text, in code points, wherever it is kept, logged or shown.
const (
	// MaxForeignError is for an error whose text may quote what another program has sent.
	MaxForeignError = 300
	// MaxForeignAnswer is for the beginning of another program's answer.
	MaxForeignAnswer = 512
)

// Excerpt returns the beginning of a foreign text as valid UTF-8 of at most limit code points
// that can be printed in a line: control and format characters and what is no UTF-8 become
// one space in a row. An ellipsis marks that something was cut off.
func Excerpt(text string, limit int) string {
	var excerpt strings.Builder
	written, spaced := 0, true // no space at the beginning
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		printable := unicode.IsPrint(r) && (r != utf8.RuneError || size > 1)
		text = text[size:]
		if !printable {
			r = ' '
		}

		if r == ' ' && spaced {
			continue
		}

		if written == limit-1 && strings.TrimSpace(text) != "" {
			excerpt.WriteRune('…')
			break
		}

		excerpt.WriteRune(r)
		written++
		spaced = r == ' '
	}

	return strings.TrimSuffix(excerpt.String(), " ")
}

// Foreign returns an error whose text, which may quote what another program has sent, is cut to
// an Excerpt of MaxForeignError; it wraps err. nil stays nil.
func Foreign(err error) error {
	if err == nil {
		return nil
	}
	return foreignError{err}
}

type foreignError struct{ cause error }

func (e foreignError) Error() string { return Excerpt(e.cause.Error(), MaxForeignError) }
func (e foreignError) Unwrap() error { return e.cause }
