package webhook

import "net/netip"

// special are the ranges that are no public unicast addresses (IANA
// special-purpose registries), and those that wrap an IPv4 address and so would
// lead around a guard. IPv6 outside globalUnicast is special as a whole.
var special = prefixes(
	"0.0.0.0/8",        // this network
	"10.0.0.0/8",       // private
	"100.64.0.0/10",    // shared by carriers; a cloud's metadata lives here
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // a cloud's host agent, public by its number only
	"169.254.0.0/16",   // link-local; metadata of most clouds
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments; a cloud's metadata lives here
	"192.0.2.0/24",     // documentation
	"192.88.99.0/24",   // 6to4 relays
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarks
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved, and broadcast
	"2001::/23",        // protocol assignments: Teredo, ORCHID, benchmarks
	"2001:db8::/32",    // documentation
	"2002::/16",        // 6to4
	"3fff::/20",        // documentation
)

// globalUnicast is the only part of IPv6 that has been given out. Outside it
// lie loopback, NAT64 (64:ff9b::/96 and 64:ff9b:1::/48), unique local,
// link-local, site-local and multicast addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// PublicAddress reports whether webhooks may be sent to the address: whether it
// is an ordinary address of the public internet (design section 7). An IPv4
// address in IPv6 clothes is judged as what it carries; a zoned one is never
// public. The address to judge is the one that is connected to, after the name
// has been resolved.
func PublicAddress(address netip.Addr) bool {
	address = address.Unmap()
	if !address.IsValid() || address.Is6() && !globalUnicast.Contains(address) {
		return false
	}
	for _, prefix := range special {
		if prefix.Contains(address) {
			return false
		}
	}
	return true
}
