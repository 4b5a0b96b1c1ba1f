package webhook

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// special are the ranges that are no public unicast addresses (IANA
// special-purpose registries), and those that wrap an IPv4 address and so would
// lead around a guard. IPv6 outside globalUnicast is special as a whole.
var special = prefixes(
	"0.0.0.0/8",         // this network
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // shared by carriers; a cloud's metadata
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // a cloud's host agent, public by its number only
	"169.254.0.0/16",    // link-local; metadata of most clouds
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments; a cloud's metadata
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112, answered by whoever is near
	"192.52.193.0/24",   // multicast relays
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, and broadcast
	"2001::/23",         // protocol assignments: Teredo, ORCHID, benchmarks, AS112
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

// globalUnicast is the only part of IPv6 that has been given out. Outside it
// lie loopback, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique local,
// link-local, site-local and multicast addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// PublicAddress reports whether webhooks may be sent to the address that a name was
// resolved to (decisions, "Webhooks"). An IPv4 address mapped into IPv6 is checked as such. A
// network that translates IPv6 to IPv4 under a prefix of its own has to keep private
// addresses out of that itself.
func PublicAddress(address netip.Addr) bool {
	zoned := address.Zone() != ""
	address = address.Unmap() // which takes the zone off
	if zoned || !address.IsValid() || address.Is6() && !globalUnicast.Contains(address) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(address) })
}

// What ParseHost refuses.
var (
	errNumericHost = errors.New("a number that is not a dotted address of four parts")
	errHostName    = errors.New("not the name of a host")
)

// hostName is labels of up to 63 characters; numericName ends with a label that makes
// it a number: digits, or hexadecimal after 0x. No top-level domain does.
var (
	hostName    = regexp.MustCompile(`^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$`)
	numericName = regexp.MustCompile(`(^|\.)(\d+|0x[0-9a-f]*)$`)
)

// ParseHost reads the host of a URL (without brackets and port) the way it is
// looked up: an address, or else a name in lower case, with international ones
// in their ASCII form and without a final dot. It refuses what is neither, and
// the notations that some resolvers read as an address ("127.1", "0x7f.1",
// "017700000001", "2130706433"). Whether an address is public, PublicAddress says.
func ParseHost(host string) (name string, address netip.Addr, err error) {
	if strings.Contains(host, ":") {
		address, err = netip.ParseAddr(host)
		if err != nil {
			return "", netip.Addr{}, errHostName
		}
		return "", address, nil
	}

	name = strings.ToLower(host)
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		// Full-width digits, ideographic dots and capitals, as a browser looks them up.
		name, err = idna.Lookup.ToASCII(host)
		if err != nil {
			return "", netip.Addr{}, errHostName
		}
	}

	name = strings.TrimSuffix(name, ".")
	if address, err := netip.ParseAddr(name); err == nil {
		return "", address, nil
	}

	switch {
	case numericName.MatchString(name):
		return "", netip.Addr{}, errNumericHost
	case len(name) > 253 || !hostName.MatchString(name):
		return "", netip.Addr{}, errHostName
	}

	return name, netip.Addr{}, nil
}
