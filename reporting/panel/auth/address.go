package auth

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientAddress stands for who asks when attempts are counted. X-Forwarded-For is
// read from its end, as far as trusted proxies have written it.
func (g *Gate) clientAddress(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	address := peer.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !g.trusts(address) {
			break
		}
		before, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil {
			break
		}
		address = before.Unmap().WithZone("")
	}
	return Network(address).String()
}

// Network is what counts as one caller: an IPv4 address, or the /64 that an IPv6
// host chooses its addresses from.
func Network(address netip.Addr) netip.Prefix {
	bits := 64
	if address.Is4() {
		bits = 32
	}
	network, _ := address.Prefix(bits) // both are in range
	return network
}

func (g *Gate) trusts(address netip.Addr) bool { return trusted(g.proxies, address) }

func trusted(proxies []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}
