// Package config reads a program's settings: one YAML file per program, in
// which an unknown key is an error, and secrets, which come from the
// environment or from files that the environment names.
// What a value may be is said by the type that is loaded, in its Validate method.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Validator is what a settings type implements to judge itself after loading.
type Validator interface{ Validate() error }

// Load reads the YAML file at path into dst, a pointer to a struct. In every
// value, quoted or not, ${NAME} and ${NAME:-default} are replaced from the
// environment first; an empty variable counts as unset, an unset one without a
// default is an error. What a variable holds is only ever a value: it cannot
// add keys. An unknown or repeated key is an error. When dst implements
// Validator, its Validate is called last. Each error is a line of its own that
// begins with file, line and key: "configs/worker.yaml:71: webhook.timeout: …".
func Load(path string, dst any) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	body, err := decode(source, dst)
	if err != nil {
		return locate(path, body, err)
	}
	if v, ok := dst.(Validator); ok {
		if err := v.Validate(); err != nil {
			return locate(path, body, err)
		}
	}
	return nil
}

// Locate puts file, line and key before an error that a program finds in what
// Load has read, as Load does; nil stays nil.
func Locate(path string, err error) error {
	if err == nil {
		return nil
	}
	var body ast.Node
	if file, unreadable := parser.ParseFile(path, 0); unreadable == nil && len(file.Docs) > 0 {
		body = file.Docs[0].Body
	}
	return locate(path, body, err)
}

// decode also returns what the file holds, as far as it could be read.
func decode(source []byte, dst any) (ast.Node, error) {
	file, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, err
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("more than one YAML document")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil // nothing but comments: every value keeps its default
	}
	body, err := expand(file.Docs[0].Body)
	if err != nil {
		return file.Docs[0].Body, err
	}
	return body, yaml.NodeToValue(body, dst, yaml.DisallowUnknownField())
}

// unexpandable is a value whose variables cannot be replaced.
type unexpandable struct {
	line  int
	cause error
}

func (u *unexpandable) Error() string { return u.cause.Error() }

// expand replaces the variables in every scalar below node and returns the
// node to put in its place.
func expand(node ast.Node) (ast.Node, error) {
	switch n := node.(type) {
	case *ast.MappingNode:
		for _, pair := range n.Values {
			if _, err := expand(pair); err != nil {
				return nil, err
			}
		}
	case *ast.MappingValueNode:
		value, err := expand(n.Value)
		if err != nil {
			return nil, err
		}
		n.Value = value
	case *ast.SequenceNode:
		for i, item := range n.Values {
			value, err := expand(item)
			if err != nil {
				return nil, err
			}
			n.Values[i] = value
		}
	case *ast.StringNode:
		return expandScalar(n)
	}
	return node, nil
}

// expandScalar gives an unquoted scalar the type that its expanded text has in
// YAML, so that ${COUNT:-5} can fill a number; a quoted one stays a string.
func expandScalar(n *ast.StringNode) (ast.Node, error) {
	if !strings.Contains(n.Value, "${") {
		return n, nil
	}
	value, err := expandText(n.Value)
	if err != nil {
		return nil, &unexpandable{line: n.Token.Position.Line, cause: err}
	}
	quoted := n.Token.Type == token.DoubleQuoteType || n.Token.Type == token.SingleQuoteType
	tk := token.New(value, value, n.Token.Position)
	switch {
	case quoted:
		return ast.String(token.String(value, value, n.Token.Position)), nil
	case value == "" || tk.Type == token.NullType:
		return ast.Null(tk), nil
	case tk.Type == token.BoolType:
		return ast.Bool(tk), nil
	case tk.Type == token.FloatType:
		return ast.Float(tk), nil
	case tk.Type == token.IntegerType:
		return ast.Integer(tk), nil
	}
	return ast.String(token.String(value, value, n.Token.Position)), nil
}

func expandText(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		expr, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("%q lacks its closing brace", "${"+rest)
		}
		name, fallback, hasDefault := strings.Cut(expr, ":-")
		if !variableName(name) {
			return "", fmt.Errorf("%q is not ${NAME} or ${NAME:-default}", "${"+expr+"}")
		}
		value := os.Getenv(name)
		if value == "" && !hasDefault {
			return "", fmt.Errorf("the variable %s is not set and has no default", name)
		}
		if value == "" {
			value = fallback
		}
		out.WriteString(value)
		text = after
	}
}

func variableName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// CheckAddr validates where a program is to listen: host:port, with a number from 0
// (any free port) to 65535. Whether the host is this machine's shows at the start.
func CheckAddr(addr string) error {
	if addr == "" {
		return errors.New("missing")
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("want host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("want a port from 0 to 65535")
	}
	return nil
}
