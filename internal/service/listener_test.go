package service

import (
	"net/netip"
	"testing"
)

func TestListener_CountsInAllAndByAddress(t *testing.T) {
	t.Parallel()

	l := NewListener(nil, Limits{Connections: 4, PerAddress: 2})
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/64")
	proxy := netip.Prefix{}
	for i, c := range []struct {
		from  netip.Prefix
		enter bool
		want  bool
	}{
		{a, true, true}, {a, true, true}, {a, true, false}, {b, true, true}, {proxy, true, true}, {b, true, false},
		{a, false, true}, {proxy, true, true}, {a, true, false}, {proxy, false, true}, {a, true, true}, {a, true, false},
	} {
		if !c.enter {
			l.leave(c.from)
			continue
		}
		if got, perAddress := l.enter(c.from); got != c.want || perAddress && c.from == proxy {
			t.Errorf("%d: %v, per address %v", i, got, perAddress)
		}
	}

	// What has no connection any more takes no memory.
	for _, from := range []netip.Prefix{a, a, b, proxy} {
		l.leave(from)
	}

	if l.open != 0 || len(l.byNetwork) != 0 {
		t.Errorf("%d connections and %d networks are left", l.open, len(l.byNetwork))
	}
}

func TestNetwork_IsAnIPv4AddressOrASlash64(t *testing.T) {
	t.Parallel()

	for address, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "::ffff:192.0.2.1": "192.0.2.1/32", "2001:db8::1:2:3:4": "2001:db8::/64", "fe80::1%eth0": "fe80::/64",
	} {
		if got := Network(netip.MustParseAddr(address)).String(); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
