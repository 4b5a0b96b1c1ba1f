package watch

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/frame"
)

// foundOrders are the ids of the orders that a page lists, in its order.
func (a answer) foundOrders() (ids []string) {
	for n := range a.doc.Descendants() {
		if n.Type != html.ElementNode || n.Data != "a" {
			continue
		}
		for _, at := range n.Attr {
			if id, ok := strings.CutPrefix(at.Val, "/orders/"); ok && at.Key == "href" {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (a answer) finds(t *testing.T, ids ...delivery.OrderID) answer {
	t.Helper()
	var want []string
	for _, id := range ids {
		want = append(want, id.String())
	}
	if got := a.foundOrders(); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s: found %v, want %v", a.Request.URL, got, want)
	}
	return a
}

func TestOrders_AreFoundByWhatIsKnownOfThem(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	now := time.Now()
	delivered := w.Delivered(now.Add(-3 * time.Minute))
	other := w.NewVendor()
	other.Store = other.NewStore("şube 9/a", delivery.Active)
	elsewhere := other.Order("", now.Add(-2*time.Minute))
	w.export()
	fresh := w.Vendor.Order("", now.Add(-time.Minute)) // Redis alone has it
	for name, c := range map[string]struct {
		query url.Values
		want  []delivery.OrderID
	}{
		"nothing asked":           {nil, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"external id, exported":   {url.Values{"q": {delivered.ExternalOrderID}}, []delivery.OrderID{delivered.ID}},
		"external id, live":       {url.Values{"q": {"  " + fresh.ExternalOrderID + "\u200b"}}, []delivery.OrderID{fresh.ID}},
		"store id":                {url.Values{"q": {"şube 9/a"}}, []delivery.OrderID{elsewhere.ID}},
		"part of the store name":  {url.Values{"q": {"KADIKÖY"}}, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"Turkish letters i":       {url.Values{"q": {"kadiköy ş"}}, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"account":                 {url.Values{"account": {other.Account.String()}}, []delivery.OrderID{elsewhere.ID}},
		"status":                  {url.Values{"status": {"Delivered"}}, []delivery.OrderID{delivered.ID}},
		"under way":               {url.Values{"status": {"open"}, "days": {"7"}}, []delivery.OrderID{elsewhere.ID}},
		"external id of another":  {url.Values{"q": {fresh.ExternalOrderID}, "account": {other.Account.String()}}, nil},
		"quotes and percent":      {url.Values{"q": {`' OR 1=1 -- % {text:String}`}}, nil},
		"a part of an identifier": {url.Values{"q": {"order-"}}, nil},
	} {
		t.Run(name, func(t *testing.T) { w.get("/orders?"+c.query.Encode()).finds(t, c.want...) })
	}
	w.get("/orders").says(t, "Kadıköy Şube", "Hızlı Kurye", "Delivered", "123.45 Cash", "Test").
		links(t, "/accounts/"+other.Account.String(), "/stores/"+other.Account.String()+"/%C5%9Fube%209%2Fa", "/fleets/"+w.Fleet.ID.String())
}

func TestOrders_IDLeadsStraightToTheOrder(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	id := delivery.MakeOrderID(3, 20000, [12]byte{7})
	for _, text := range []string{id.String(), " " + strings.ToUpper(id.String()) + "\n", delivery.EventID(id, 1<<32|4)} {
		a := w.ask("GET", "operator", "/orders?q="+url.QueryEscape(text))
		if a.StatusCode != http.StatusFound || a.Header.Get("Location") != "/orders/"+id.String() {
			t.Errorf("%q: %d %s", text, a.StatusCode, a.Header.Get("Location"))
		}
	}
}

func TestOrders_WrongParametersAreToldAndKept(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for query, says := range map[string]string{
		"q=" + strings.Repeat("x", 129): "at most 128 characters",
		"account=x":                     "must be an account's id",
		"status=Lost":                   "is no status of an order",
		"days=0":                        "must be a number of days",
		"days=1e3":                      "must be a number of days",
		"after=zzz":                     "is no place in this list",
	} {
		a := w.ask("GET", "operator", "/orders?"+query)
		a.says(t, says)
		if a.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", query, a.StatusCode)
		}
	}
}

func TestOrders_PagesHoldEveryOrderOnce(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.insertOrders(130, 0) // all of one millisecond
	seen := map[string]bool{}
	pages, path := 0, "/orders"
	for path != "" {
		a := w.get(path)
		for _, id := range a.foundOrders() {
			if seen[id] {
				t.Fatalf("%s stands on two pages", id)
			}
			seen[id] = true
		}
		pages++
		path = a.next()
	}
	if len(seen) != 130 || pages != 3 {
		t.Errorf("%d orders on %d pages", len(seen), pages)
	}
}

// next is where the link to older orders leads; empty without one.
func (a answer) next() string {
	for n := range a.doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == "a" {
			rel, href := "", ""
			for _, at := range n.Attr {
				switch at.Key {
				case "rel":
					rel = at.Val
				case "href":
					href = at.Val
				}
			}
			if rel == "next" {
				return href
			}
		}
	}
	return ""
}

func TestOrders_StatesAreThoseOfNow(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	o := w.Vendor.Order("", time.Now())
	w.export()
	w.Move(o, delivery.Failed, time.Now()) // the exporter does not know yet
	if w.Read(o.ID).Status != delivery.Failed {
		w.Move(o, delivery.Delivered, time.Now())
	}
	w.get("/orders").finds(t, o.ID).says(t, w.Read(o.ID).Status.String()).hides(t, "pill accent")
	w.get("/orders?status=Searching").finds(t)
}

func TestOrders_WithoutClickHouseAreFoundByIDs(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	o := w.Vendor.Order("", time.Now())
	w.serve(w.away())
	w.get("/orders?q="+o.ExternalOrderID).finds(t, o.ID).says(t, "History is unavailable")
	w.get("/orders?q=elsewhere").finds(t).says(t, "Nothing was found in what can be searched now")
	w.get("/orders").finds(t).says(t, "History is unavailable")
}

func TestOrders_WithoutRedisAreThoseOfClickHouse(t *testing.T) {
	t.Parallel()
	w := newWatchedToStop(t)
	w.insertOrders(60, time.Minute)
	w.Server.Stop()
	w.get("/orders?q=isparta").says(t, "Cannot be read right now: live orders (Redis), names of accounts, present states (Redis)", "Older orders", "ISPARTA")
}

func TestOrders_NothingFoundOffersALongerPeriod(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.get("/orders?q=nowhere").says(t, "No order was found that is like this", "Search the last 30 days").links(t, "/orders?days=30&q=nowhere")
	w.get("/orders?days=366").says(t, "No order was found").hides(t, "Search the")
}

func TestOrders_ManyAccountsAreTyped(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for i := range mostAccounts {
		w.account(fmt.Sprintf("Çok Uzun Adlı Lokanta Zinciri %03d", i))
	}
	a := w.get("/orders?account=" + w.Vendor.Account.String())
	if strings.Contains(a.text, `<select id="account"`) || !strings.Contains(a.text, `value="`+w.Vendor.Account.String()+`"`) {
		t.Error("a list of all accounts")
	}
}

func TestStorePath_LeadsToStoresOfAnyName(t *testing.T) {
	t.Parallel()
	account := delivery.AccountID{1}
	for id, want := range map[string]string{
		"moda": "moda", "şube 9/a": "%C5%9Fube%209%2Fa", "a?b#c%": "a%3Fb%23c%25", "..": "_?id=..", ".": "_?id=.", "/": "_?id=%2F",
	} {
		if got := frame.StorePath(account, id, ""); got != "/stores/"+account.String()+"/"+want {
			t.Errorf("%q: %s", id, got)
		}
	}
}
