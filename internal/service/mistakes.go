package service

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"vendorapi/internal/config"
)

// What production refuses although it is well-formed, because it can only be a mistake.

// PublicURLMistake returns why people elsewhere cannot use a base URL that they are given,
// or nil.
func PublicURLMistake(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("no URL")
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	labels := strings.Split(host, ".")
	last := labels[len(labels)-1]
	addr, notAddr := netip.ParseAddr(host)

	switch {
	case u.Scheme != "https":
		return errors.New("production wants https://")
	case host == "localhost" || last == "localhost":
		return errors.New("localhost is the machine of whoever opens it")
	case notAddr == nil:
		return addressMistake(addr.Unmap().WithZone(""))
	case strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x"):
		return errors.New("the host is neither a name nor an address")
	case len(labels) == 1 || last == "local" || last == "internal":
		return errors.New("a name that only this network knows; others cannot reach it")
	}
	return nil
}

func addressMistake(addr netip.Addr) error {
	switch {
	case addr.IsLoopback() || addr.IsUnspecified():
		return fmt.Errorf("%s is the machine of whoever opens it", addr)
	case addr.IsPrivate() || !addr.IsGlobalUnicast():
		return fmt.Errorf("%s is an address of this network only; others cannot reach it", addr)
	}
	return nil
}

// PublicListener is how a listener that others than operators reach is set up.
type PublicListener struct {
	Addr              string
	TLS               bool
	Proxies           []string // whose word about a client's address is believed
	ConnectionsPerIP  int      // 0: no limit
	ProxiesKey, IPKey string   // the names of the last two settings
}

// Mistakes returns why the listener cannot be meant so. Plain HTTP at an address that
// others reach needs a balancer that ends TLS, whose connections all have the balancer's
// address: either it is named, and says whose they are, or no address has a limit.
func (l *PublicListener) Mistakes() error {
	networks, err := ParseNetworks(l.Proxies)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(networks, isEverybody) {
		return fmt.Errorf("%s: everybody may say whose a connection is; name the balancer's network", l.ProxiesKey)
	}

	isPlain := !l.TLS && !isLocal(l.Addr)
	if isPlain && len(networks) == 0 && l.ConnectionsPerIP != 0 {
		return fmt.Errorf("%s: plain HTTP at an address that others reach (%s) needs a balancer before it that ends TLS: name its network here, "+
			"or say with %s: 0 that it sends no client's address", l.ProxiesKey, l.Addr, l.IPKey)
	}
	return nil
}

// isEverybody reports whether a network has more than an organisation's own addresses:
// more than 10.0.0.0/8 or fc00::/7.
func isEverybody(network netip.Prefix) bool {
	if network.Addr().Is4() {
		return network.Bits() < 8
	}
	return network.Bits() < 7
}

// isLocal reports whether only this machine reaches an address that is listened on.
func isLocal(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// TooWide returns an error that begins with key where one of the networks has everybody.
func TooWide(key string, texts []string) error {
	networks, _ := ParseNetworks(texts) // Validate has read them
	return config.Demand(!slices.ContainsFunc(networks, isEverybody), key+": everybody is believed; name the proxy's address")
}
