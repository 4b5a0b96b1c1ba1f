package tracking

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/browser"
)

// look makes an open page renew itself now instead of in a few seconds.
func look(p *browser.Page) { browser.Eval[bool](p, "window.dispatchEvent(new Event('online'))") }

func TestBrowser_EveryoneCanUseEveryPage(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(s *scene) {
		s.store.Name = strings.Repeat("Uzunisimlirestoranlarındanbiri", 4)
		s.fleet.Name = "Hızlı " + strings.Repeat("ve Güvenilir ", 8) + "Kurye"
	})
	on := s.order()
	s.reach(on, delivery.Delivering, 5*time.Minute)
	s.locate(on, s.store.Point, 6*time.Minute)
	searching, delivered, failed, cancelled := s.order(), s.order(), s.order(), s.order()
	s.reach(delivered, delivery.Delivered, 6*time.Minute)
	s.fail(failed, delivery.NoCourierFound, 6*time.Minute)
	_, _, err := s.ledger.CancelOrder(context.Background(), s.store.Account, cancelled.ID, "", "", began)
	must(t, err)
	p := browser.Start(t).Open(t, s.server.URL)
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
	s := newScene(t)
	o := s.order()
	p := browser.Start(t).Open(t, s.server.URL)
	p.Visit(pathOf(o), http.StatusOK)
	p.Shows("Looking for a courier")
	s.reach(o, delivery.Delivering, 5*time.Minute)
	p.WaitText("Your courier is coming to you.") // by its own clock
	if said := p.Text("#said"); !strings.Contains(said, "On the way to you") {
		t.Errorf("told is %q", said)
	}
	s.locate(o, s.store.Point, 6*time.Minute)
	look(p)
	p.WaitText("Your courier is about")
	s.reach(o, delivery.Delivered, 20*time.Minute)
	look(p)
	p.WaitText("Handed over at")
	if title := browser.Eval[string](p, "document.title"); title != "Delivered · Your delivery" {
		t.Errorf("the title is %q", title)
	}
	before := s.counted(renewal, shown)
	for range 3 {
		look(p)
	}
	time.Sleep(500 * time.Millisecond)
	if after := s.counted(renewal, shown); after != before {
		t.Errorf("the page has asked %v times after the end", after-before)
	}
}

// A page that loses the service says so, keeps what it shows, and recovers.
func TestBrowser_SaysThatTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: dir})
	must(t, err)
	s := newSceneOn(t, own.URL)
	o := s.order()
	p := browser.Start(t).Open(t, s.server.URL)
	p.Visit(pathOf(o), http.StatusOK)
	p.Expect(http.StatusServiceUnavailable)
	own.Stop()
	look(p)
	p.WaitText("No connection.")
	p.Shows("Looking for a courier")
	p.Usable()
	late := browser.Start(t).Open(t, s.server.URL) // who comes now
	late.Visit(pathOf(o), http.StatusServiceUnavailable)
	late.Shows("Just a moment")
	late.Usable()

	again, err := stack.StartRedis(t.Context(), stack.RedisOptions{Dir: dir, Addr: own.Addr})
	must(t, err)
	t.Cleanup(again.Stop)
	s.reach(o, delivery.Assigned, time.Minute)
	look(p)
	p.WaitText("A courier has your order")
	p.Until("the page has its connection back", func() bool { return !strings.Contains(p.Text("body"), "No connection.") })
	late.WaitText("A courier has your order") // by itself
}
