package chromium

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
)

// Kind says what a Trouble is.
type Kind string

// The kinds of trouble.
const (
	Console   Kind = "console"   // console.error, console.warn and failed asserts
	Exception Kind = "exception" // that no script caught
	Complaint Kind = "browser"   // what the browser itself complains of, the page's policy above all
	Answer    Kind = "answer"    // a request was answered with a status of 400 or above
	Request   Kind = "request"   // a request failed without an answer, or was refused by the page's policy
	Dialog    Kind = "dialog"    // alert or prompt; a page may only ask for a confirmation
)

// Trouble is something that should not happen on a sound page.
type Trouble struct {
	Kind   Kind
	Text   string
	URL    string
	Status int // of an Answer
}

func (t Trouble) String() string { return fmt.Sprintf("%s: %s (%s)", t.Kind, t.Text, t.URL) }

// Notes are what a tab has seen since it was opened. Safe for concurrent use.
type Notes struct {
	mu       sync.Mutex
	troubles []Trouble
	urls     map[network.RequestID]string
	hosts    map[string]string // host and port -> the first URL that was asked of it
	status   int               // of the last document
	loads    int
	confirms []string
	opened   []*page.EventJavascriptDialogOpening // dialogs that wait for an answer
	dialogs  chan struct{}                        // a dialog waits
}

func newNotes() *Notes {
	return &Notes{urls: map[network.RequestID]string{}, hosts: map[string]string{}, dialogs: make(chan struct{}, 1)}
}

// Troubles are all so far, in the order in which they happened.
func (n *Notes) Troubles() []Trouble {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.troubles)
}

// Hosts are the hosts, with ports, that were asked for anything, each with the
// first such URL.
func (n *Notes) Hosts() map[string]string {
	n.mu.Lock()
	defer n.mu.Unlock()
	hosts := make(map[string]string, len(n.hosts))
	for host, first := range n.hosts {
		hosts[host] = first
	}
	return hosts
}

// Status is the last document's.
func (n *Notes) Status() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

// Confirmed are the questions that the pages have asked (window.confirm); each
// was answered with yes.
func (n *Notes) Confirmed() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.confirms)
}

func (n *Notes) loaded() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.loads
}

// notice takes note of one event of the browser; it is called in their order.
func (n *Notes) notice(event any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch e := event.(type) {
	case *page.EventLoadEventFired:
		n.loads++
	case *network.EventRequestWillBeSent:
		n.asked(e.RequestID, e.Request.URL)
	case *network.EventWebSocketCreated:
		n.asked(e.RequestID, e.URL)
	case *network.EventResponseReceived:
		n.answered(e)
	case *network.EventLoadingFailed:
		if !e.Canceled || e.BlockedReason != "" {
			n.trouble(Request, strings.TrimSpace(e.ErrorText+" "+string(e.BlockedReason)), n.urls[e.RequestID])
		}
	case *log.EventEntryAdded:
		// The browser's own word for a failed request adds nothing to the notes
		// of the request itself.
		if e.Entry.Source != log.EntrySourceNetwork && (e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning) {
			n.trouble(Complaint, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		n.said(e)
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		n.trouble(Exception, text, e.ExceptionDetails.URL)
	case *page.EventJavascriptDialogOpening:
		n.dialogOpens(e)
	}
}

func (n *Notes) trouble(kind Kind, text, url string) {
	n.troubles = append(n.troubles, Trouble{Kind: kind, Text: text, URL: url})
}

func (n *Notes) asked(id network.RequestID, address string) {
	n.urls[id] = address
	u, err := url.Parse(address)
	if err != nil {
		n.hosts[address] = address
		return
	}
	if u.Host != "" && n.hosts[u.Host] == "" { // data: and blob: ask nobody
		n.hosts[u.Host] = address
	}
}

func (n *Notes) answered(e *network.EventResponseReceived) {
	if e.Type == network.ResourceTypeDocument {
		n.status = int(e.Response.Status)
	}
	if e.Response.Status >= 400 {
		n.troubles = append(n.troubles, Trouble{Kind: Answer, Text: fmt.Sprintf("answered %d", e.Response.Status), URL: e.Response.URL, Status: int(e.Response.Status)})
	}
}

func (n *Notes) said(e *runtime.EventConsoleAPICalled) {
	switch e.Type {
	case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
	default:
		return
	}
	var words []string
	for _, arg := range e.Args {
		word := string(arg.Value)
		if arg.Description != "" {
			word = arg.Description
		}
		words = append(words, word)
	}
	where := ""
	if e.StackTrace != nil && len(e.StackTrace.CallFrames) > 0 {
		where = e.StackTrace.CallFrames[0].URL
	}
	n.trouble(Console, strings.Join(words, " "), where)
}

func (n *Notes) dialogOpens(e *page.EventJavascriptDialogOpening) {
	if e.Type == page.DialogTypeConfirm {
		n.confirms = append(n.confirms, e.Message)
	} else {
		n.trouble(Dialog, string(e.Type)+": "+e.Message, e.URL)
	}
	n.opened = append(n.opened, e)
	select {
	case n.dialogs <- struct{}{}:
	default:
	}
}

// answerDialogs says yes to every dialog until ctx ends: an open one holds up
// the whole tab.
func (t *Tab) answerDialogs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.dialogs:
		}
		t.mu.Lock()
		waiting := len(t.opened)
		t.opened = nil
		t.mu.Unlock()
		for range waiting {
			_, _ = call(t, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}) // it may be gone with its page
		}
	}
}
