package auth

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"vendorapi/internal/service"
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
	return service.Network(address).String()
}

func (g *Gate) trusts(address netip.Addr) bool { return trusted(g.proxies, address) }

func trusted(proxies []netip.Prefix, address netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}
