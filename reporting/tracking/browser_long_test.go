//go:build long

package tracking

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/browser"
	"vendorapi/internal/testenv/testserver"
)

// look makes an open page renew itself now instead of in a few seconds.
func look(p *browser.Page) { browser.Eval[bool](p, "window.dispatchEvent(new Event('online'))") }

func TestBrowser_EveryoneCanUseEveryPage(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.rename(strings.Repeat("Uzunisimlirestoranlarındanbiri", 4), "Hızlı "+strings.Repeat("ve Güvenilir ", 8)+"Kurye")
	on := e.order()
	e.reach(on, delivery.Delivering, 5*time.Minute)
	e.locate(on, e.store.Point, 6*time.Minute)
	searching, delivered, failed, cancelled := e.order(), e.order(), e.order(), e.order()
	e.reach(delivered, delivery.Delivered, 6*time.Minute)
	e.fail(failed, delivery.NoCourierFound, 6*time.Minute)
	e.cancel(cancelled, "", 0)
	p := browser.Start(t).Open(t, e.client.URL)
	for _, c := range []struct {
		path   string
		status int
		says   string
	}{
		{pathOf(on), 200, "Siparişiniz yolda"}, {pathOf(searching), 200, "Kurye aranıyor"}, {pathOf(delivered), 200, "Teslim edildi"},
		{pathOf(failed), 200, "teslim edilemedi"}, {pathOf(cancelled), 200, "iptal edildi"}, {"/track/x", 404, "tanımıyoruz"},
	} {
		p.Language("tr")
		p.Visit(c.path, c.status)
		p.Shows(c.says)
		p.Usable()
		p.Language("en")
		p.Visit(c.path, c.status)
		if got := browser.Eval[string](p, "document.documentElement.lang"); got != "en" {
			t.Errorf("%s is in %q", c.path, got)
		}
	}
}

// The page renews itself, tells who does not see it, and stops at the end.
func TestBrowser_FollowsTheOrderByItself(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.order()
	p := browser.Start(t).Open(t, e.client.URL)
	p.Visit(pathOf(o), http.StatusOK)
	p.Shows("Looking for a courier")
	e.reach(o, delivery.Delivering, 5*time.Minute)
	p.WaitText("Your courier is coming to you.") // by its own clock
	if said := p.Text("#said"); !strings.Contains(said, "On the way to you") {
		t.Errorf("told is %q", said)
	}
	e.locate(o, e.store.Point, 6*time.Minute)
	look(p)
	p.WaitText("Your courier is about")
	e.reach(o, delivery.Delivered, 20*time.Minute)
	look(p)
	p.WaitText("Handed over at")
	if title := browser.Eval[string](p, "document.title"); title != "Delivered · Your delivery" {
		t.Errorf("the title is %q", title)
	}
	before := e.counted(renewal, shown)
	for range 3 {
		look(p)
	}
	// A request of the test's own comes after those that the page had made by now.
	if status := browser.Eval[int](p, "fetch(location.pathname + '/live').then(r => r.status)"); status != http.StatusOK {
		t.Errorf("answered %d", status)
	}
	if after := e.counted(renewal, shown); after != before+1 {
		t.Errorf("the page has asked %v times after the end", after-before-1)
	}
}

// A page that loses the service says so, keeps what it shows, and recovers.
func TestBrowser_SaysThatTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	server := testserver.DedicatedRedis(t, stack.RedisOptions{})
	e := newEnvOn(t, testenv.NewOn(t, server))
	o := e.order()
	p := browser.Start(t).Open(t, e.client.URL)
	p.Visit(pathOf(o), http.StatusOK)
	p.Expect(http.StatusServiceUnavailable)
	server.Stop()
	look(p)
	p.WaitText("No connection.")
	p.Shows("Looking for a courier")
	p.Usable()
	late := browser.Start(t).Open(t, e.client.URL) // who comes now
	late.Visit(pathOf(o), http.StatusServiceUnavailable)
	late.Shows("Just a moment")
	late.Usable()

	must(t, server.Start(t.Context()))
	e.reach(o, delivery.Assigned, time.Minute)
	look(p)
	p.WaitText("A courier has your order")
	p.Until("the page has its connection back", func() bool { return !strings.Contains(p.Text("body"), "No connection.") })
	late.WaitText("A courier has your order") // by itself
}
