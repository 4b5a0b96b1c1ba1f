package webhook

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPublicAddress_RefusesEverySpecialRange(t *testing.T) {
	refused := map[string][]string{
		"this network":    {"0.0.0.0", "0.1.2.3", "::"},
		"private":         {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1"},
		"carrier shared":  {"100.64.0.0", "100.100.100.200", "100.127.255.255"},
		"loopback":        {"127.0.0.1", "127.255.255.254", "::1"},
		"host agent":      {"168.63.129.16"},
		"link-local":      {"169.254.0.1", "169.254.169.254", "fe80::1", "fe80::1%lo", "febf::1"},
		"AS112":           {"192.31.196.1", "192.175.48.1", "2620:4f:8000::1", "2001:4:112::1"},
		"multicast relay": {"192.52.193.1", "2001:3::1"},
		"protocol":        {"192.0.0.1", "192.0.0.192", "2001:1::1", "2001:10::1", "2001:2::1"},
		"documentation":   {"192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"},
		"6to4":            {"192.88.99.1", "2002:7f00:1::1", "2002:808:808::1"},
		"benchmark":       {"198.18.0.1", "198.19.255.255"},
		"multicast":       {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"},
		"reserved":        {"240.0.0.1", "254.1.1.1", "255.255.255.255"},
		"IPv4-mapped":     {"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::ffff:100.64.0.1"},
		"IPv4-compatible": {"::7f00:1", "::8.8.8.8"},
		"IPv4-translated": {"::ffff:0:7f00:1"},
		"NAT64":           {"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "64:ff9b:1:ffff::1"},
		"Teredo":          {"2001::1", "2001:0:53aa:64c::1"},
		"unique local":    {"fc00::1", "fd00:ec2::254", "fdff::1"},
		"site-local":      {"fec0::1", "feff::1"},
		"discard":         {"100::1"},
		"not given out":   {"4000::1", "1fff::1", "8000::1", "e000::1"},
		"segment routing": {"5f00::1"},
		"with a zone":     {"fe80::5efe:7f00:1%eth0", "2606:4700::1111%eth0", "::ffff:8.8.8.8%eth0"},
	}

	for kind, addresses := range refused {
		for _, text := range addresses {
			check(t, !PublicAddress(netip.MustParseAddr(text)), "%s address %s is allowed", kind, text)
		}
	}

	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
		"128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
		"192.0.1.0", "192.0.3.0", "192.31.195.255", "192.52.194.0", "192.175.49.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"::ffff:8.8.8.8", "2001:200::1", "2001:4860:4860::8888", "2606:4700::1111", "2a00:1450::1", "2003::1", "3ffe::1",
	} {
		check(t, PublicAddress(netip.MustParseAddr(text)), "public address %s is refused", text)
	}

	check(t, !PublicAddress(netip.Addr{}), "no address at all is allowed")
}

func TestParseHost_TellsNamesFromAddresses(t *testing.T) {
	for host, want := range map[string]string{ // a name, an address, or nothing: refused
		"vendor.example": "vendor.example", "VENDOR.Example": "vendor.example", "vendor.example.": "vendor.example",
		"a_b.vendor.example": "a_b.vendor.example", "localhost": "localhost", "xn--fiqs8s.example": "xn--fiqs8s.example",
		"çiğköfte.com": "xn--ikfte-xra1iso.com", "ÇAĞ.com": "xn--a-5fa3o.com", "çağ.com": "xn--a-5fa3o.com", "中国。example": "xn--fiqs8s.example",
		"1.1.1.1.example": "1.1.1.1.example", "0x7f.example": "0x7f.example", "7f": "7f", "x0": "x0", "0x7g": "0x7g",

		"127.0.0.1": "127.0.0.1", "127.0.0.1.": "127.0.0.1", "１２７.０.０.１": "127.0.0.1", "127。0。0。1": "127.0.0.1",
		"①②⑦.0.0.1": "127.0.0.1", "::1": "::1", "0:0::1": "::1", "::ffff:127.0.0.1": "::ffff:127.0.0.1",
		"::FFFF:7F00:1": "::ffff:127.0.0.1", "fe80::1%eth0": "fe80::1%eth0", "::ffff:127.0.0.1%lo": "::ffff:127.0.0.1%lo", "64:ff9b::127.0.0.1": "64:ff9b::7f00:1",

		"2130706433": "", "017700000001": "", "0x7f000001": "", "0X7F000001": "", "127.1": "", "127.0.1": "", "0x7f.1": "",
		"0177.0.0.1": "", "127.0.0.01": "", "127.0.0.0x1": "", "127.0.0.256": "", "127.0.0.1.1": "", "vendor.1": "",
		"vendor.0x1f": "", "vendor.0x": "", "0": "", "1.": "", "２１３０７０６４３３": "",
		"": "", ".": "", "..": "", "a..b": "", ".vendor.example": "", "vendor.example..": "", "a b": "", "a\x00b": "", "a%b": "",
		"a/b": "", "a@b": "", "a\\b": "", "[::1]": "", "::1%": "", "1:2": "", ":": "", "a:b": "",
		strings.Repeat("a", 64): "", strings.Repeat("a.", 127) + "a": "",
	} {
		name, address, err := ParseHost(host)
		got := name
		if address.IsValid() {
			got += address.String()
		}
		check(t, got == want && (err != nil) == (want == ""), "ParseHost(%q) = %q, %v, %v; want %q", host, name, address, err, want)
	}
}
