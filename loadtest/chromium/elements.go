package chromium

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Element is something on the page as assistive technology knows it.
type Element struct {
	Role string // such as "link", "button", "textbox"; empty: any in which something can be entered
	Name string // its whole accessible name
	In   string // CSS of the part of the page to look in; empty: all of it
}

func (e Element) String() string {
	text := fmt.Sprintf("%s %q", e.Role, e.Name)
	if e.Role == "" {
		text = fmt.Sprintf("field %q", e.Name)
	}
	if e.In != "" {
		text += " in " + e.In
	}
	return text
}

// entered are the roles that Chromium gives to what can be filled in.
var entered = []string{
	"textbox", "searchbox", "combobox", "listbox", "spinbutton", "checkbox", "radio", "slider", "switch",
	"Date", "DateTime", "InputTime", "ColorWell",
}

// errAbsent is for an element that is not there (yet).
var errAbsent = errors.New("is not on the page")

// find is the one element on the page that e describes.
func (t *Tab) find(e Element) (cdp.BackendNodeID, error) {
	root := "document.body"
	if e.In != "" {
		root = "document.querySelector(" + quoted(e.In) + ")"
	}
	part, err := call(t, runtime.Evaluate, runtime.EvaluateParams{Expression: root})
	if err != nil {
		return 0, err
	}
	if part.Result == nil || part.Result.ObjectID == "" {
		return 0, fmt.Errorf("%s %w", e.In, errAbsent)
	}
	found, err := call(t, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{
		ObjectID: part.Result.ObjectID, Role: e.Role, AccessibleName: e.Name,
	})
	if err != nil {
		return 0, err
	}
	var ids []cdp.BackendNodeID
	for _, node := range found.Nodes {
		if node.Ignored || e.Role == "" && !slices.Contains(entered, value(node.Role)) {
			continue
		}
		ids = append(ids, node.BackendDOMNodeID)
	}
	switch len(ids) {
	case 0:
		return 0, fmt.Errorf("%s %w", e, errAbsent)
	case 1:
		return ids[0], nil
	default:
		return 0, fmt.Errorf("%s is on the page %d times", e, len(ids))
	}
}

func value(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	_ = json.Unmarshal([]byte(v.Value), &text) // what is no text is none of the roles
	return text
}

// Has tells whether the element is on the page exactly once.
func (t *Tab) Has(e Element) bool {
	_, err := t.find(e)
	return err == nil
}

// await returns when the element is there.
func (t *Tab) await(e Element) (id cdp.BackendNodeID, err error) {
	err = t.Until(e.String(), func() (bool, error) {
		id, err = t.find(e)
		return err == nil, err
	})
	return id, err
}

// Click waits for an element and clicks on its middle, as a mouse does.
func (t *Tab) Click(e Element) error {
	// A fragment may be replaced between finding and clicking.
	return t.Until("click "+e.String(), func() (bool, error) {
		id, err := t.find(e)
		if err != nil {
			return false, err
		}
		if _, err := call(t, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: id}); err != nil {
			return false, err
		}
		quads, err := call(t, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: id})
		if err != nil {
			return false, err
		}
		if len(quads.Quads) == 0 || len(quads.Quads[0]) != 8 {
			return false, fmt.Errorf("%s cannot be seen", e)
		}
		q := quads.Quads[0]
		return true, t.do("click "+e.String(), chromedp.MouseClickXY((q[0]+q[2]+q[4]+q[6])/4, (q[1]+q[3]+q[5]+q[7])/4))
	})
}

// Follow clicks and returns when the page that it leads to has loaded.
func (t *Tab) Follow(e Element) error {
	before := t.loaded()
	if err := t.Click(e); err != nil {
		return err
	}
	return t.Until("the page behind "+e.String(), func() (bool, error) { return t.loaded() > before, nil })
}

// fill is what becomes of a field; text is typed by the browser afterwards.
const fill = `function (text) {
	this.focus();
	switch (this.type) {
	case 'checkbox': case 'radio':
		if (this.checked !== (text === 'on')) this.click();
		return false;
	case 'select-one': {
		const option = [...this.options].find(o => o.text.trim() === text || o.value === text);
		if (!option) throw new Error('has no choice ' + text);
		this.value = option.value;
		break;
	}
	case 'date': case 'datetime-local': case 'time': case 'month':
		this.value = text;
		if (this.value !== text) throw new Error('does not take ' + text);
		break;
	default:
		this.select();
		return true;
	}
	this.dispatchEvent(new Event('input', {bubbles: true}));
	this.dispatchEvent(new Event('change', {bubbles: true}));
	return false;
}`

// Fill waits for the field with a label and puts text in place of what stands
// there. A choice is named by its text or value, a tick is "on" or "off".
func (t *Tab) Fill(label, text string) error { return t.FillIn("", label, text) }

// FillIn is Fill in the part of the page that CSS names.
func (t *Tab) FillIn(part, label, text string) error {
	e := Element{Name: label, In: part}
	id, err := t.await(e)
	if err != nil {
		return err
	}
	node, err := call(t, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: id})
	if err != nil {
		return fmt.Errorf("fill in %s: %w", e, err)
	}
	byValue := true
	done, err := call(t, runtime.CallFunctionOn, runtime.CallFunctionOnParams{
		ObjectID: node.Object.ObjectID, FunctionDeclaration: fill, ReturnByValue: &byValue,
		Arguments: []*runtime.CallArgument{{Value: []byte(quoted(text))}},
	})
	switch {
	case err != nil:
		return fmt.Errorf("fill in %s: %w", e, err)
	case done.ExceptionDetails != nil:
		return fmt.Errorf("fill in %s: %s", e, done.ExceptionDetails.Exception.Description)
	case string(done.Result.Value) != "true":
		return nil
	case text == "":
		return t.Press("\b")
	}
	if _, err := call(t, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		return fmt.Errorf("fill in %s: %w", e, err)
	}
	return nil
}

// Press types keys, such as "\t" or "\r", into what has the focus.
func (t *Tab) Press(keys string) error { return t.do("press a key", chromedp.KeyEvent(keys)) }

// Text is what a person reads in the first element that matches CSS, without
// what is hidden; "body" is the whole page.
func (t *Tab) Text(css string) (string, error) {
	return Evaluate[string](t, "(document.querySelector("+quoted(css)+")?.innerText ?? '')")
}

// WaitText returns when the page shows text.
func (t *Tab) WaitText(text string) error {
	return t.Until(fmt.Sprintf("the page shows %q", text), func() (bool, error) {
		shown, err := t.Text("body")
		return strings.Contains(shown, text), err
	})
}

// quoted is text as a JavaScript literal.
func quoted(text string) string {
	literal, err := json.Marshal(text)
	if err != nil {
		panic(err) // text always encodes
	}
	return string(literal)
}
