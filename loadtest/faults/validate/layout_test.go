package validate

import (
	"encoding/binary"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

func openLedger(t *testing.T, server *testserver.Redis, partitions int) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Config{
		URL:         server.URL,
		Environment: delivery.Sandbox,
		Partitions:  partitions,
		Timeout:     testserver.Timeout,
		Log:         slog.New(slog.DiscardHandler),
	})

	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })

	return l
}

// An owner writes its token to the key O of its partition.
func TestPartitionsOf_HaveTheTagsOfALedger(t *testing.T) {
	t.Parallel()

	for _, count := range []int{1, 4, 16, 300} {
		t.Run(strconv.Itoa(count), func(t *testing.T) {
			t.Parallel()

			server := testserver.NewRedis(t)
			l := openLedger(t, server, count)
			tokens, err := l.Ownership.Tokens(t.Context())
			testenv.Must(t, err)
			for p := range l.Partitions() {
				_, err := l.Ownership.Take(t.Context(), p, tokens[p], "worker")
				testenv.Must(t, err)
			}

			found, err := server.Client.Keys(t.Context(), "*}O").Result()
			testenv.Must(t, err)

			var want []string
			for _, p := range partitionsOf(l.Environment(), l.Partitions()) {
				want = append(want, p.tag+"O")
			}

			slices.Sort(found)
			slices.Sort(want)
			if !slices.Equal(found, want) {
				t.Errorf("the ledger has %q, want %q", found, want)
			}
		})
	}
}

// The value is the one that the specification of Redis Cluster gives.
func TestSlotOf_IsThatOfRedis(t *testing.T) {
	t.Parallel()
	if got, want := slotOf("123456789"), 0x31C3; got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

func TestOrderOf_RefusesWhatIsNoMember(t *testing.T) {
	t.Parallel()

	p := partition{number: 3}
	want := delivery.MakeOrderID(3, 20_000, delivery.Digest{1, 2, 3})
	member := memberOf(want)
	if got, ok := p.orderOf(member); got != want || !ok {
		t.Errorf("got %s, %t, want %s", got, ok, want)
	}

	for _, text := range []string{"", member[1:], member + "x"} {
		if got, ok := p.orderOf(text); ok {
			t.Errorf("%q names %s", text, got)
		}
	}
}

// memberOf returns how indexes name an order: the 12 bytes of its digest, and its day in 2.
func memberOf(id delivery.OrderID) string {
	digest := id.Digest()
	return string(binary.BigEndian.AppendUint16(digest[:], id.Day()))
}

func TestWaitingEvent_NamesEveryKind(t *testing.T) {
	t.Parallel()

	p := partition{number: 1}
	order := delivery.MakeOrderID(1, 20_000, delivery.Digest{1, 2, 3})
	version := delivery.ComposeVersion(time.Now(), 5, 7)
	event := "\x01" + memberOf(order) + string(binary.BigEndian.AppendUint64(nil, version)) + "\x03"
	for item, want := range map[string]string{
		event:            Subject(order.String(), 7),
		"\x02evt_notice": "evt_notice",
		"\x0412345678":   "043132333435363738",
		"\x01":           "01",
		"\x02":           "02",
		"":               "",
	} {
		if got := p.waitingEvent(item); got != want {
			t.Errorf("%q: %q, want %q", item, got, want)
		}
	}
}
