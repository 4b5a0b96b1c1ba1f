package overlay

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// replaceScript replaces what a Lua file declares in a script of the module.
func (o *Overlay) replaceScript(path, source, text string) error {
	script, err := o.Read(path)
	if err != nil {
		return err
	}
	changed, replaced, err := replaceLua(string(script), text)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}

	if len(replaced) == 0 {
		return fmt.Errorf("%s replaces nothing", source)
	}

	for _, name := range replaced {
		if err := o.claim(path, source, name); err != nil {
			return err
		}
	}

	o.texts[path] = []byte(changed)

	return nil
}

// wholeScript stands for a script among the names of what has been replaced.
const wholeScript = "the script"

// originalCall matches a call of the script by the statements that take its place.
var originalCall = regexp.MustCompile(`\boriginal\(KEYS, ARGV\)`)

// luaComment matches a comment, to the end of its line.
var luaComment = regexp.MustCompile(`--.*`)

// replaceLua returns a script with what another text makes of it, and the names of what was replaced.
//
// A local function of the text takes the place of the script's function of that name, which stays as
// <name>_original. It must not call itself by its name.
//
//	local function order_courier(order, courier)
//	  return order_courier_original(order, courier)
//	end
//
// Statements outside of functions take the place of the whole script. They can call it:
//
//	ARGV[1] = call('GET', KEYS[1])
//	return original(KEYS, ARGV)
//
// Both need the format of this project: a function that begins a line ends in that line, or with the
// next line that begins with "end".
func replaceLua(script, text string) (changed string, replaced []string, err error) {
	functions, statements, err := luaFunctions(text)
	if err != nil {
		return "", nil, err
	}

	callsOriginal := originalCall.MatchString(luaComment.ReplaceAllString(statements, ""))
	if statements != "" && !callsOriginal {
		return text, []string{wholeScript}, nil
	}

	for _, f := range functions {
		ofScript, _, err := luaFunctions(script)
		if err != nil {
			return "", nil, fmt.Errorf("the script: %w", err)
		}

		i := slices.IndexFunc(ofScript, func(other luaFunction) bool { return other.name == f.name })
		if i < 0 {
			return "", nil, fmt.Errorf("the script has no %s to be replaced", f.name)
		}

		head := "local function " + f.name
		original := strings.Replace(ofScript[i].text, head, head+"_original", 1)
		script = strings.Replace(script, ofScript[i].text, original+f.text, 1)
		replaced = append(replaced, f.name)
	}

	// This comes last, because luaFunctions does not find functions within a function.
	if callsOriginal {
		script = "local function original(KEYS, ARGV)\n" + strings.TrimRight(script, "\n") + "\nend\n" + statements
		replaced = append(replaced, wholeScript)
	}

	return script, replaced, nil
}

// luaFunction is a local function that begins a line.
type luaFunction struct{ name, text string }

var luaFunctionHead = regexp.MustCompile(`^local function (\w+)\(`)

// luaFunctions returns a text's functions, and its statements outside of them, without comments and
// blank lines. The error reports that a function has no end.
func luaFunctions(text string) (functions []luaFunction, statements string, err error) {
	var rest strings.Builder
	var unfinished *luaFunction // the function that is being read; nil outside of functions
	for line := range strings.Lines(text) {
		head := luaFunctionHead.FindStringSubmatch(line)
		trimmed := strings.TrimSpace(line)
		endsInLine := strings.HasSuffix(trimmed, " end")
		isStatement := trimmed != "" && !strings.HasPrefix(trimmed, "--")

		switch {
		case head != nil && unfinished != nil: // no function stands within another
			return nil, "", withoutEnd(unfinished)

		case unfinished != nil: // a function's body, or its end
			unfinished.text += line
			if strings.HasPrefix(line, "end") {
				functions = append(functions, *unfinished)
				unfinished = nil
			}

		case head != nil && endsInLine: // a function of one line
			functions = append(functions, luaFunction{name: head[1], text: line})

		case head != nil: // the first line of a longer one
			unfinished = &luaFunction{name: head[1], text: line}

		case isStatement:
			rest.WriteString(line)
		}
	}

	if unfinished != nil {
		return nil, "", withoutEnd(unfinished)
	}

	return functions, rest.String(), nil
}

// withoutEnd reports that no line that begins with "end" follows a function's.
func withoutEnd(f *luaFunction) error {
	return fmt.Errorf("the function %s has no end that begins a line", f.name)
}
