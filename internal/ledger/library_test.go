package ledger

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Libraries of earlier releases leave when a new one is loaded, unless somebody
// may still work with them.
func TestLibraries_GoWhenNobodyHasUsedThemForAWeek(t *testing.T) {
	server, _ := ownServer(t)
	day := time.Duration(0)
	open := func(release string) *Ledger {
		l, err := Open(t.Context(), Config{URL: server.URL, Environment: "sandbox", Log: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return time.Now().Add(day) },
			edit: func(file, text string) string {
				if file == "names" {
					text += "local release = '" + release + "'\n"
				}
				return text
			}})
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	use := func(l *Ledger) {
		t.Helper()
		if _, err := l.Consume(t.Context(), delivery.NewAccountID(), EndpointOrders); errors.Is(err, delivery.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	libraries := func(l *Ledger) (names []string) {
		found := get(l.rdb.FunctionList(t.Context(), redis.FunctionListQuery{LibraryNamePattern: "*"}).Result())(t)
		for _, library := range found {
			names = append(names, library.Name)
		}
		slices.Sort(names)
		return names
	}
	must(t, redis.NewClient(&redis.Options{Addr: server.Addr}).FunctionLoad(t.Context(),
		"#!lua name=vendorapi_unnoted\nredis.register_function('unnoted', function() return 1 end)").Err())
	first := open("first")
	use(first)
	day = 6 * 24 * time.Hour
	second := open("second")
	use(second)
	equal(t, len(libraries(first)), 3, "after six days")
	day = 8 * 24 * time.Hour
	third := open("third")
	use(third)
	want := []string{second.scripts.library, third.scripts.library}
	slices.Sort(want)
	equal(t, libraries(third), want, "after eight days")
	use(first) // still running: it loads its own again
	equal(t, len(libraries(third)), 3, "after the first release's next call")
}

// A server that has lost the library (a new master, FUNCTION FLUSH) gets it
// again with the next call, whichever way that is sent.
func TestScripts_LibraryIsLoadedWhereItIsMissing(t *testing.T) {
	_, own := ownServer(t)
	s := newEnv(t, own)
	forget := func() { must(t, s.rdb.FunctionFlush(t.Context()).Err()) }
	forget()
	o := s.create(t, "X-1")
	forget()
	get(s.Consume(t.Context(), s.account, EndpointStores))(t)
	forget()
	s.advance(t, o.ID, delivery.Assigned) // in a pipeline
}
