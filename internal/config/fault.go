package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// fault is one thing that is wrong with a settings file, where it stands.
type fault struct {
	where string // path, or path:line
	text  string // begins with the key where one is to blame
	cause error
}

func (f *fault) Error() string { return f.where + ": " + f.text }

func (f *fault) Unwrap() error { return f.cause }

// locate says of each error in err which line of the file at path it is about.
// What the parser finds carries its place; what a Validate method finds begins
// with its key, "redis.partitions: want 1 to 1024", and the line is that of the
// key, or of the section that lacks it. body is the file's content, nil when it
// has none.
func locate(path string, body ast.Node, err error) error {
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) && err.Error() == errors.Join(several.Unwrap()...).Error() {
		var each []error
		for _, one := range several.Unwrap() {
			each = append(each, locate(path, body, one))
		}
		return errors.Join(each...)
	}
	f := &fault{where: path, text: err.Error(), cause: err}
	line := 0
	var (
		read yaml.Error
		text *unexpandable
	)
	switch {
	case errors.As(err, &read) && read.GetToken() != nil:
		line, f.text = read.GetToken().Position.Line, message(body, read)
	case errors.As(err, &text):
		line = text.line
		if key := keyOn(body, "", line); key != "" {
			f.text = key + ": " + f.text
		}
	case strings.HasPrefix(f.text, invalidTime):
		// The library says what, and not where.
		value, _ := strconv.Unquote(strings.TrimPrefix(f.text, invalidTime))
		if key, at := keyOf(body, "", value); key != "" {
			f.text, line = key+": want "+plainType("time.Duration"), at
		}
	default:
		line = lineOf(body, f.text)
	}
	if line > 0 {
		f.where = fmt.Sprintf("%s:%d", path, line)
	}
	return f
}

// message is what the parser or decoder says, with the key it is about and in
// words of a settings file instead of Go's.
func message(body ast.Node, e yaml.Error) string {
	text := e.GetMessage()
	var kind *yaml.TypeError
	if errors.As(e, &kind) {
		text = fmt.Sprintf("want %s", plainType(kind.DstType.String()))
	}
	if key := keyAt(body, "", e.GetToken()); key != "" {
		text = key + ": " + text
	}
	return text
}

func plainType(name string) string {
	switch {
	case name == "time.Duration":
		return "a time such as 500ms, 10s or 1h"
	case strings.HasPrefix(name, "int") || strings.HasPrefix(name, "uint"):
		return "a whole number"
	case strings.HasPrefix(name, "float"):
		return "a number"
	case name == "bool":
		return "true or false"
	case strings.HasPrefix(name, "[]"):
		return "a list"
	case name == "string":
		return "a text"
	}
	return "keys of its own"
}

// keyAt is the dotted path of the key or value that the token belongs to, or "".
func keyAt(node ast.Node, path string, at *token.Token) string {
	for _, pair := range pairs(node) {
		key := join(path, pair.Key.GetToken().Value)
		here := pair.Key.GetToken().Position
		if here.Line == at.Position.Line && here.Column == at.Position.Column {
			return key
		}
		if below := keyAt(pair.Value, key, at); below != "" {
			return below
		}
		if p := pair.Value.GetToken().Position; p != nil && p.Line == at.Position.Line && p.Column == at.Position.Column {
			return key
		}
	}
	return ""
}

// invalidTime is how time.ParseDuration begins its errors; the value follows.
const invalidTime = "time: invalid duration "

// keyOf is the dotted path of the first key that has a value, and its line.
func keyOf(node ast.Node, path, value string) (string, int) {
	for _, pair := range pairs(node) {
		key := join(path, pair.Key.GetToken().Value)
		if below, line := keyOf(pair.Value, key, value); below != "" {
			return below, line
		}
		if text, ok := pair.Value.(*ast.StringNode); ok && text.Value == value {
			return key, pair.Key.GetToken().Position.Line
		}
	}
	return "", 0
}

// keyOn is the dotted path of the key that stands on a line, or "".
func keyOn(node ast.Node, path string, line int) string {
	found := ""
	for _, pair := range pairs(node) {
		key := join(path, pair.Key.GetToken().Value)
		if pair.Key.GetToken().Position.Line <= line {
			found = key
			if below := keyOn(pair.Value, key, line); below != "" {
				found = below
			}
		}
	}
	return found
}

// lineOf is the line of the key that text begins with, else of the innermost
// section of it that is there; 0 when none is.
func lineOf(node ast.Node, text string) int {
	line := 0
	for {
		end := strings.IndexFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		if end <= 0 {
			return line
		}
		var value ast.Node
		for _, pair := range pairs(node) {
			if pair.Key.GetToken().Value == text[:end] {
				line, value = pair.Key.GetToken().Position.Line, pair.Value
			}
		}
		if value == nil {
			return line
		}
		// "section.key: …" or "section: key …"
		node, text = value, strings.TrimLeft(text[end:], ".: ")
	}
}

func pairs(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
