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
	functions, statements := luaFunctions(text)
	if statements != "" {
		if !strings.Contains(statements, "original(KEYS, ARGV)") {
			return text, []string{wholeScript}, nil
		}
		script = "local function original(KEYS, ARGV)\n" + strings.TrimRight(script, "\n") + "\nend\n" + statements
		replaced = append(replaced, wholeScript)
	}

	for _, f := range functions {
		ofScript, _ := luaFunctions(script)
		i := slices.IndexFunc(ofScript, func(other luaFunction) bool { return other.name == f.name })
		if i < 0 {
			return "", nil, fmt.Errorf("the script has no %s to be replaced", f.name)
		}

		head := "local function " + f.name
		original := strings.Replace(ofScript[i].text, head, head+"_original", 1)
		script = strings.Replace(script, ofScript[i].text, original+f.text, 1)
		replaced = append(replaced, f.name)
	}
	return script, replaced, nil
}

// luaFunction is a local function that begins a line.
type luaFunction struct{ name, text string }

var luaFunctionHead = regexp.MustCompile(`^local function (\w+)\(`)

// luaFunctions returns a text's functions, and all else but comments and blank lines.
func luaFunctions(text string) (functions []luaFunction, statements string) {
	var rest strings.Builder
	var open *luaFunction // whose end has not come
	for line := range strings.Lines(text) {
		head := luaFunctionHead.FindStringSubmatch(line)
		trimmed := strings.TrimSpace(line)
		switch {
		case open != nil:
			open.text += line
			if strings.HasPrefix(line, "end") {
				functions = append(functions, *open)
				open = nil
			}
		case head != nil && strings.HasSuffix(trimmed, " end"):
			functions = append(functions, luaFunction{name: head[1], text: line})
		case head != nil:
			open = &luaFunction{name: head[1], text: line}
		case trimmed != "" && !strings.HasPrefix(trimmed, "--"):
			rest.WriteString(line)
		}
	}
	return functions, rest.String()
}
