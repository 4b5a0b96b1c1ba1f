// Package config reads a program's settings: one YAML file per program, in which an
// unknown key and a missing one are errors, and variables, among them all secrets, which
// come from the environment or from files that the environment names (Variable). What a
// value may be is said by the Validate method of the type that is loaded.
package config

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Validator is what a settings type implements. It is asked after loading.
type Validator interface{ Validate() error }

// Demand is an error with the text fault, which begins with the key and says what is wanted, unless ok.
func Demand(ok bool, fault string) error {
	if ok {
		return nil
	}
	return errors.New(fault)
}

// Load reads the YAML file at path into dst, a pointer to a struct, and validates it. In
// every value, quoted or not, ${NAME} and ${NAME:-default} are replaced first, by what
// Variable says of NAME; an unset one without a default is an error. What a variable holds
// cannot add keys. An unknown or repeated key is an error, and so is a missing one: every
// key of dst stands in the file, those of each element of a list, too. A text or a list
// may stand there without a value. Each error is a line of its own that begins with file,
// line and key: "configs/worker.yaml:71: webhook.timeout: …".
func Load(path string, dst Validator) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}

	body, err := decode(source, dst)
	if err == nil {
		err = checkComplete(body, dst)
	}

	if err == nil {
		err = dst.Validate()
	}

	return locate(path, body, err)
}

// decode also returns what it has parsed.
func decode(source []byte, dst any) (ast.Node, error) {
	file, err := parser.ParseBytes(source, 0)
	if err != nil {
		return nil, err
	}

	if len(file.Docs) > 1 {
		return nil, errors.New("more than one YAML document")
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil // nothing but comments
	}

	body := file.Docs[0].Body
	if err := expand(body); err != nil {
		return body, err
	}

	return body, yaml.NodeToValue(body, dst, yaml.DisallowUnknownField())
}

func expand(body ast.Node) (err error) {
	for _, n := range ast.Filter(ast.MappingValueType, body) {
		pair := n.(*ast.MappingValueNode)
		pair.Value, err = expandScalar(pair.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", keyOf(pair), err)
		}
	}

	for _, n := range ast.Filter(ast.SequenceType, body) {
		list := n.(*ast.SequenceNode)
		for i := range list.Values {
			list.Values[i], err = expandScalar(list.Values[i])
			if err != nil {
				return fmt.Errorf("%s: %w", keyOf(list), err)
			}
		}
	}

	return nil
}

// expandScalar gives an unquoted scalar the type that its expanded text has in
// YAML, so that ${COUNT:-5} can fill a number; a quoted one stays a string.
func expandScalar(node ast.Node) (ast.Node, error) {
	n, ok := node.(*ast.StringNode)
	if !ok || !strings.Contains(n.Value, "${") {
		return node, nil
	}

	value, err := expandText(n.Value)
	if err != nil {
		return node, err
	}

	text := ast.String(token.String(value, value, n.Token.Position))
	if n.Token.Type == token.DoubleQuoteType || n.Token.Type == token.SingleQuoteType {
		return text, nil
	}

	tk := token.New(value, value, n.Token.Position)
	switch {
	case value == "" || tk.Type == token.NullType:
		return ast.Null(tk), nil
	case tk.Type == token.BoolType:
		return ast.Bool(tk), nil
	case tk.Type == token.FloatType:
		return ast.Float(tk), nil
	case tk.Type == token.IntegerType:
		return ast.Integer(tk), nil
	}

	return text, nil
}

// variable is ${NAME} or ${NAME:-default}, or what looks like one.
var variable = regexp.MustCompile(`\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|[^}]*\}?)`)

func expandText(text string) (string, error) {
	var fault error
	expanded := variable.ReplaceAllStringFunc(text, func(found string) string {
		parts := variable.FindStringSubmatch(found)
		name, fallback := parts[1], parts[2]
		value, err := Variable(name)
		switch {
		case err != nil:
			fault = err
		case !strings.HasSuffix(found, "}"):
			fault = fmt.Errorf("%q lacks its closing brace", found)
		case name == "":
			fault = fmt.Errorf("%q is not ${NAME} or ${NAME:-default}", found)
		case value == "" && fallback == "":
			fault = fmt.Errorf("the variable %s is not set and has no default", name)
		case value == "":
			value = fallback[len(":-"):]
		}

		return value
	})

	return expanded, fault
}

// Locate puts file, line and key before an error that a program finds in what
// Load has read, as Load does; nil stays nil.
func Locate(path string, err error) error {
	var body ast.Node
	if file, unreadable := parser.ParseFile(path, 0); unreadable == nil && len(file.Docs) > 0 {
		body = file.Docs[0].Body
	}
	return locate(path, body, err)
}

// invalidTime is how time.ParseDuration begins its errors; the value follows.
const invalidTime = "time: invalid duration "

// locate puts before each error in err the file and the line that it is about. What the
// parser finds carries its position; other errors begin with their key,
// "redis.partitions: want 1 to 1024", and the line is that of the key, or of the section
// that lacks it. body is the file's content, nil when it has none.
func locate(path string, body ast.Node, err error) error {
	if err == nil {
		return nil
	}

	var several interface{ Unwrap() []error }
	if errors.As(err, &several) && err.Error() == errors.Join(several.Unwrap()...).Error() {
		var each []error
		for _, one := range several.Unwrap() {
			each = append(each, locate(path, body, one))
		}
		return errors.Join(each...)
	}

	var line int
	if read, ok := errors.AsType[yaml.Error](err); ok && read.GetToken() != nil {
		at, text := read.GetToken().Position, read.GetMessage()
		if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
			text = "want " + plainType(wrong.DstType.String())
		}

		key, _ := find(body, func(_ string, pair *ast.MappingValueNode) bool {
			return samePlace(pair.Key, at) || samePlace(pair.Value, at)
		})
		if key != "" {
			text = key + ": " + text
		}

		line, err = at.Line, errors.New(text)
	} else if quoted, ok := strings.CutPrefix(err.Error(), invalidTime); ok { // its place is missing
		value, _ := strconv.Unquote(quoted)
		var key string
		key, line = find(body, func(_ string, pair *ast.MappingValueNode) bool {
			scalar, ok := pair.Value.(*ast.StringNode)
			return ok && scalar.Value == value
		})
		err = errors.New(key + ": want " + plainType("time.Duration"))
	} else {
		words := strings.FieldsFunc(err.Error(), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		named := strings.Join(words, ".") + "."
		_, line = find(body, func(key string, _ *ast.MappingValueNode) bool { return strings.HasPrefix(named, key+".") })
	}

	if line > 0 {
		path = fmt.Sprintf("%s:%d", path, line)
	}

	return fmt.Errorf("%s: %w", path, err)
}

// find returns the innermost key below body that matches, dotted, and its line.
func find(body ast.Node, matches func(key string, pair *ast.MappingValueNode) bool) (key string, line int) {
	if body == nil {
		return "", 0
	}

	for _, n := range ast.Filter(ast.MappingValueType, body) { // outer ones come first
		pair := n.(*ast.MappingValueNode)
		if matches(keyOf(pair), pair) {
			key, line = keyOf(pair), pair.Key.GetToken().Position.Line
		}
	}

	return key, line
}

func keyOf(n ast.Node) string { return strings.TrimPrefix(n.GetPath(), "$.") }

func samePlace(n ast.Node, at *token.Position) bool {
	p := n.GetToken().Position
	return p.Line == at.Line && p.Column == at.Column
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

	_, err = strconv.ParseUint(port, 10, 16)

	return Demand(err == nil, "want a port from 0 to 65535")
}

// Reachable turns an address to listen on into one to call: a wildcard means every
// interface, loopback included.
func Reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // the caller's request fails and says why
	}

	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// WriteEffective writes "ok", the settings as they are in force, defaults and
// environment included, as YAML, and from where each of the named secrets comes. No
// secret is shown: passwords in URLs are "xxxxx".
func WriteEffective(w io.Writer, path string, settings any, secrets ...string) error {
	var file *ast.File
	text, err := yaml.Marshal(settings)
	if err == nil {
		file, err = parser.ParseBytes(text, 0)
	}

	if err != nil {
		return fmt.Errorf("write the settings: %w", err)
	}

	for _, n := range ast.FilterFile(ast.StringType, file) {
		scalar := n.(*ast.StringNode)
		scalar.Value = withoutPassword(scalar.Value)
	}

	var out strings.Builder
	fmt.Fprintf(&out, "# %s: ok\n%s", path, file.String())
	if len(secrets) > 0 {
		out.WriteString("# Secrets, whose values are not shown:\n")
	}

	for _, name := range secrets {
		fmt.Fprintf(&out, "#   %-14s %s\n", name, sourceOf(name))
	}

	_, err = io.WriteString(w, out.String())

	return err
}

// sourceOf says where a secret comes from (see Secret).
func sourceOf(name string) string {
	if path := os.Getenv(name + fileSuffix); path != "" {
		return "from the file " + path
	}
	if os.Getenv(name) != "" {
		return "from the environment"
	}
	return "not set"
}

// redacted stands for a password, as in package net/url.
const redacted = "xxxxx"

var secretParameter = regexp.MustCompile(`(?i)pass|secret|token|key`)

// withoutPassword is a setting without the passwords that it holds as a URL, as
// user:password@ or among its parameters. What looks like one and cannot be
// read is hidden as a whole.
func withoutPassword(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}

	u, err := url.Parse(text)
	if err != nil {
		return redacted
	}

	values := u.Query()
	for name := range values {
		if secretParameter.MatchString(name) {
			values.Set(name, redacted)
			u.RawQuery = values.Encode()
		}
	}

	return u.Redacted()
}
