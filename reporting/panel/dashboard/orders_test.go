package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/layout"
)

func TestOrders_AreFoundByWhatIsKnownOfThem(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	delivered := e.Delivered(now.Add(-3 * time.Minute))
	other := e.NewVendor()
	other.Store = other.NewStore("şube 9/a", delivery.Active)
	elsewhere := other.Order("", now.Add(-2*time.Minute))
	e.export()
	fresh := e.Vendor.Order("", now.Add(-time.Minute)) // Redis alone has it
	for name, c := range map[string]struct {
		query url.Values
		want  []delivery.OrderID
	}{
		"nothing asked":           {nil, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"external id, exported":   {url.Values{"q": {delivered.ExternalOrderID}}, []delivery.OrderID{delivered.ID}},
		"external id, live":       {url.Values{"q": {"  " + fresh.ExternalOrderID + "\u200b"}}, []delivery.OrderID{fresh.ID}},
		"of an account, live":     {url.Values{"q": {fresh.ExternalOrderID}, "account": {e.Vendor.Account.String()}}, []delivery.OrderID{fresh.ID}},
		"store id":                {url.Values{"q": {"şube 9/a"}}, []delivery.OrderID{elsewhere.ID}},
		"part of the store name":  {url.Values{"q": {"KADIKÖY"}}, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"Turkish letters i":       {url.Values{"q": {"kadiköy ş"}}, []delivery.OrderID{elsewhere.ID, delivered.ID}},
		"account":                 {url.Values{"account": {other.Account.String()}}, []delivery.OrderID{elsewhere.ID}},
		"status":                  {url.Values{"status": {"Delivered"}}, []delivery.OrderID{delivered.ID}},
		"under way":               {url.Values{"status": {"open"}, "days": {"7"}}, []delivery.OrderID{elsewhere.ID}},
		"external id of another":  {url.Values{"q": {fresh.ExternalOrderID}, "account": {other.Account.String()}}, nil},
		"quotes and percent":      {url.Values{"q": {`' OR 1=1 -- % {text:String}`}}, nil},
		"a part of an identifier": {url.Values{"q": {"order-"}}, nil},
		"short id":                {url.Values{"q": {layout.Short(delivered.ID)}}, []delivery.OrderID{delivered.ID}},
		"short id of a report":    {url.Values{"q": {strings.ToUpper(layout.Short(elsewhere.ID)) + "…"}}, []delivery.OrderID{elsewhere.ID}},
		"more of an id":           {url.Values{"q": {delivered.ID.String()[:20]}}, []delivery.OrderID{delivered.ID}},
		"less of an id":           {url.Values{"q": {delivered.ID.String()[:7]}}, nil},
		"external id, other case": {url.Values{"q": {strings.ToUpper(delivered.ExternalOrderID)}}, nil},
	} {
		t.Run(name, func(t *testing.T) { e.finds(e.get("/orders?"+c.query.Encode()), c.want...) })
	}

	// An order that only Redis has is shown with its store's name.
	e.get("/orders?q="+url.QueryEscape(fresh.ExternalOrderID)).Says("Kadıköy Şube", "compared whole and letter by letter, capitals included", "Phone numbers are not searched")
	e.get("/orders").Says("Kadıköy Şube", "Hızlı Kurye", "Delivered", "123.45 Cash, order 123.45", "Test").
		Links("/accounts/"+other.Account.String(), "/stores/"+other.Account.String()+"/%C5%9Fube%209%2Fa", "/fleets/"+e.Fleet.ID.String())
}

// No timer has ended it, and whoever is on call must see it.
func TestOrders_ListsThoseThatShouldHaveEnded(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	e.Delivered(now.Add(-26 * time.Hour))
	forgotten := e.Vendor.Order("", now.Add(-25*time.Hour))
	fresh := e.Vendor.Order("", now.Add(-time.Minute))
	e.export()

	e.finds(e.get("/orders?status=overdue"), forgotten.ID)
	e.finds(e.get("/orders?status=overdue&q=" + fresh.ExternalOrderID))
	e.finds(e.get("/orders?status=open&days=7"), fresh.ID, forgotten.ID)
}

func TestOrders_IDLeadsStraightToTheOrder(t *testing.T) {
	e := newEnv(t)
	id := delivery.MakeOrderID(3, 20000, [12]byte{7})
	for _, text := range []string{id.String(), " " + strings.ToUpper(id.String()) + "\n", delivery.EventID(id, 1<<32|4)} {
		e.client.Get("/orders?q=" + url.QueryEscape(text)).Want(http.StatusFound).Carries(map[string]string{"Location": "/orders/" + id.String()})
	}
}

func TestOrders_WrongParametersAreToldAndKept(t *testing.T) {
	e := newEnv(t)
	for query, says := range map[string]string{
		"q=" + strings.Repeat("x", 129): "at most 128 characters",
		"account=x":                     "or an account's id",
		"status=Lost":                   "is no status of an order",
		"days=0":                        "must be a number of days",
		"days=1e3":                      "must be a number of days",
		"after=zzz":                     "is no place in this list",
	} {
		e.client.Get("/orders?" + query).Want(http.StatusUnprocessableEntity).Says(says)
	}
}

func TestOrders_PagesHoldEveryOrderOnce(t *testing.T) {
	e := newEnv(t)
	e.insertOrders(130, 0) // all of one millisecond
	seen := map[string]bool{}
	pages, path := 0, "/orders"
	for path != "" {
		a := e.get(path)
		for _, id := range listed(a) {
			if seen[id] {
				t.Fatalf("%s stands on two pages", id)
			}
			seen[id] = true
		}

		pages++
		path = ""
		for _, n := range testenv.All(a.Tree(), "a") {
			if testenv.Attribute(n, "rel") == "next" {
				path = testenv.Attribute(n, "href")
			}
		}
	}

	if len(seen) != 130 || pages != 3 {
		t.Errorf("%d orders on %d pages", len(seen), pages)
	}
}

// A row of another release, or of no program of this service, hides no other and
// is not shown as ClickHouse being unavailable; the list goes on behind it.
func TestOrders_RowThatCannotBeUnderstoodHidesNoOther(t *testing.T) {
	e := newEnv(t)
	e.insertOrders(pageRows+10, time.Minute)
	newest := "FROM " + e.Database + ".orders ORDER BY created_at DESC LIMIT "
	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".orders SELECT * REPLACE (generateUUIDv4() AS order_id) "+newest+"1")
	e.ClickHouse.Exec(t, "INSERT INTO "+e.Database+".orders SELECT * REPLACE (version + 1 AS version, 'Weighed' AS status) "+newest+"1 OFFSET 3")
	first := e.get("/orders").Says("2 orders of this page cannot be shown").Hides("History is unavailable", "Cannot be read right now")
	ids := listed(first)
	for _, n := range testenv.All(first.Tree(), "a") {
		if testenv.Attribute(n, "rel") == "next" {
			ids = append(ids, listed(e.get(testenv.Attribute(n, "href")))...)
		}
	}

	slices.Sort(ids)
	if want := pageRows + 10 - 1; len(ids) != want || len(slices.Compact(ids)) != want {
		t.Errorf("two pages list %d orders, want %d", len(ids), want)
	}

	strange := strings.TrimSpace(e.Ask("toString(order_id) FROM " + e.Database + ".orders WHERE status = 'Weighed'"))
	e.client.Get("/orders/" + strange).Want(http.StatusInternalServerError).Hides("right now")
}

func TestOrders_EndedOtherwiseThanDeliveredTellWhy(t *testing.T) {
	e := newEnv(t)
	for _, reason := range []delivery.CancelReason{delivery.CustomerRequest, ""} {
		o := e.Vendor.Order("", time.Now())
		_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.Vendor.Account, o.ID, reason, "", time.Now())
		must(t, err)
	}

	e.export()
	e.get("/orders?status=Cancelled").Says("Cancelled CustomerRequest", "Cancelled no reason given")
}

func TestOrders_StatesAreThoseOfNow(t *testing.T) {
	e := newEnv(t)
	o := e.Vendor.Order("", time.Now())
	e.export()
	e.Move(o, delivery.Delivered, time.Now()) // the exporter does not know yet
	e.finds(e.get("/orders"), o.ID).Says("Delivered").Hides("pill accent")
	e.finds(e.get("/orders?status=Searching"))
}

func TestOrders_WithoutClickHouseAreFoundByIDs(t *testing.T) {
	e := newEnv(t)
	o := e.Vendor.Order("", time.Now())
	e.serve(e.unavailable())
	e.finds(e.get("/orders?q="+o.ExternalOrderID), o.ID).Says("History is unavailable")
	e.finds(e.get("/orders?account="+o.Account.String()+"&q="+o.ExternalOrderID), o.ID).Says("History is unavailable")
	e.finds(e.get("/orders?q=elsewhere")).Says("Nothing was found in what can be searched now")
	e.finds(e.get("/orders")).Says("History is unavailable")
}

// A search by external id over all accounts shows what can be read, and says that there is more.
func TestOrders_OneThatCannotBeReadHidesNoOther(t *testing.T) {
	e := newEnvToStop(t)
	var orders []*delivery.Order
	for range 3 {
		v := e.NewVendor()
		edit := v.Edit
		v.Edit = func(d *delivery.OrderDraft) {
			edit(d)
			d.ExternalOrderID = "same-id"
		}
		orders = append(orders, v.Order("", time.Now().Add(time.Duration(len(orders))*time.Second)))
	}

	client, err := e.Server.Client()
	must(t, err)
	defer client.Close()
	digest := delivery.OrderDigest(orders[1].Account, "same-id")
	keys, err := client.Keys(t.Context(), "*").Result()
	must(t, err)
	for _, key := range keys {
		isRecord := strings.HasSuffix(key, string(digest[:])) && client.Type(t.Context(), key).Val() == "string"
		if isRecord {
			must(t, client.Set(t.Context(), key, "damaged", 0).Err())
		}
	}

	a := e.get("/orders?q=same-id")

	e.finds(a, orders[2].ID, orders[0].ID).Says("One order with this id in Redis cannot be read").Hides("Cannot be read right now")
}

func TestOrders_WithoutRedisAreThoseOfClickHouse(t *testing.T) {
	e := newEnvToStop(t)
	e.insertOrders(60, time.Minute)
	e.Server.Stop()
	e.get("/orders?q=isparta").Says("Cannot be read right now: live orders (Redis), accounts to choose from, names of accounts, present states (Redis)", "Older orders", "ISPARTA")
}

func TestOrders_NothingFoundOffersALongerPeriod(t *testing.T) {
	e := newEnv(t)
	e.get("/orders?q=nowhere").Says("No order matches this search", "each compared letter by letter, capitals included", "in the last 7 days. Search the last 30 days").Links("/orders?days=30&q=nowhere")
	e.get("/orders?days=366").Says("There are no orders in the last year.").Hides("Search the")
}

func TestOrders_ManyAccountsAreTyped(t *testing.T) {
	e := newEnv(t)
	for i := range layout.MostChoices {
		must(t, e.Ledger.Accounts.Create(t.Context(), &delivery.Account{ID: delivery.NewAccountID(), Name: fmt.Sprintf("Çok Uzun Adlı Lokanta Zinciri %03d", i),
			CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}, [32]byte{3}))
	}

	a := e.get("/orders?account=" + e.Vendor.Account.String())
	if strings.Contains(a.Text, `<select id="account"`) || !strings.Contains(a.Text, `value="`+e.Vendor.Account.String()+`"`) {
		t.Error("a list of all accounts")
	}
}

func TestStorePath_LeadsToStoresOfAnyName(t *testing.T) {
	t.Parallel()

	account := delivery.AccountID{1}
	for id, want := range map[string]string{
		"moda": "moda", "şube 9/a": "%C5%9Fube%209%2Fa", "a?b#c%": "a%3Fb%23c%25", "..": "_?id=..", ".": "_?id=.", "/": "_?id=%2F",
	} {
		if got := layout.StorePath(account, id, ""); got != "/stores/"+account.String()+"/"+want {
			t.Errorf("%q: %s", id, got)
		}
	}
}

func TestOrders_ShowWhatIsCollected(t *testing.T) {
	t.Parallel()

	set := func(n int64) delivery.Money { return delivery.Money{Minor: n, Set: true} }
	for name, c := range map[string]struct {
		order delivery.OrderDraft
		want  delivery.Money
	}{
		"less than the order":     {delivery.OrderDraft{OrderAmount: set(10000), Payment: delivery.Payment{Type: delivery.Cash, CollectionAmount: set(8000)}}, set(8000)},
		"no order amount":         {delivery.OrderDraft{Payment: delivery.Payment{Type: delivery.Card, CollectionAmount: set(4550)}}, set(4550)},
		"no amount":               {delivery.OrderDraft{OrderAmount: set(10000), Payment: delivery.Payment{Type: delivery.Cash}}, delivery.Money{}},
		"prepaid":                 {delivery.OrderDraft{OrderAmount: set(10000), Payment: delivery.Payment{Type: delivery.Prepaid}}, set(0)},
		"prepaid, with an amount": {delivery.OrderDraft{Payment: delivery.Payment{Type: delivery.Prepaid, CollectionAmount: set(10000)}}, set(0)},
		"no payment type":         {delivery.OrderDraft{OrderAmount: set(10000), Payment: delivery.Payment{CollectionAmount: set(10000)}}, delivery.Money{}},
	} {
		if got := (orderRow{Order: &delivery.Order{OrderDraft: c.order}}).ToCollect(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
