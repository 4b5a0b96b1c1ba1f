package sender

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestGuard_LocalAllowsLoopbackAndNothingElse(t *testing.T) {
	local := guard{local: true, own: []uint16{8123}}
	for _, text := range []string{"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "8.8.8.8"} {
		address := netip.MustParseAddr(text)
		if !local.allows(netip.AddrPortFrom(address, 9000)) {
			t.Errorf("%s is refused", text)
		}
		if own := local.allows(netip.AddrPortFrom(address, 8123)); own != (text == "8.8.8.8") {
			t.Errorf("%s at the port of our own: %v", text, own)
		}
	}

	for address, why := range map[string]string{"127.0.0.1:8123": "is one of the service's own ports", "[::1]:8123": "is one of the service's own ports",
		"10.0.0.1:8123": "is not a public address", "127.0.0.1": "is not a public address"} {
		if err := local.control(t.Context(), "tcp", address, nil); err == nil || err.Error() != address+" "+why {
			t.Errorf("%s: %v, want that it %s", address, err, why)
		}
	}

	for _, text := range []string{"10.0.0.1", "169.254.169.254", "0.0.0.0", "::", "fe80::1", "fd00::1", "192.168.1.1", "168.63.129.16"} {
		if local.allows(netip.AddrPortFrom(netip.MustParseAddr(text), 9000)) {
			t.Errorf("%s is allowed", text)
		}
	}
}

func TestGuardControl_RefusesWhatItCannotRead(t *testing.T) {
	for _, address := range []string{"", "127.0.0.1", "localhost:80", "[::1]:80", "10.1.1.1:443", "[fe80::1%eth0]:443"} {
		err := guard{}.control(t.Context(), "tcp", address, nil)
		var refused refusedAddress
		if !errors.As(err, &refused) {
			t.Errorf("control(%q) = %v", address, err)
		}
	}

	if err := (guard{}).control(t.Context(), "tcp4", net.JoinHostPort("8.8.8.8", "443"), nil); err != nil {
		t.Errorf("a public address: %v", err)
	}
}

func TestGuardParseURL(t *testing.T) {
	for _, c := range []struct {
		raw             string
		public, sandbox bool
	}{
		{"https://vendor.example/hook?x=1", true, true},
		{"https://vendor.example:8443/", true, true},
		{"https://[2606:4700::1111]/hook", true, true},
		{"HTTPS://vendor.example", true, true},
		{"http://vendor.example/hook", false, true},
		{"http://127.0.0.1:9000/hook", false, true},
		{"ftp://vendor.example/", false, false},
		{"file:///etc/passwd", false, false},
		{"gopher://vendor.example/", false, false},
		{"https:///hook", false, false},
		{"https://:443/", false, false},
		{"https:vendor.example", false, false},
		{"//vendor.example/hook", false, false},
		{"vendor.example/hook", false, false},
		{"https://user:secret@vendor.example/", false, false},
		{"https://vendor.example@10.0.0.1/", false, false},
		{"https://ven dor.example/", false, false},
		{"https://vendor.example:port/", false, false},
		{"https://vendor.example/\x00", false, false},
		{"", false, false},
		{"https://127.1/", false, false},
		{"https://2130706433/", false, false},
		{"https://0x7f.1/", false, false},
		{"https://vendor..example/", false, false},
	} {
		for local, want := range map[bool]bool{false: c.public, true: c.sandbox} {
			g := guard{local: local}
			u, err := g.parseURL(c.raw)
			if (err == nil) != want {
				t.Errorf("%+v: parseURL(%q) = %v, %v", g, c.raw, u, err)
			}
		}
	}
}

func TestGuardParseURL_ReadsTheHostAsItIsLookedUp(t *testing.T) {
	for raw, want := range map[string]string{
		"https://vendor.example/hook?a=b#secret": "//vendor.example/hook?a=b", "https://VENDOR.example.:8443/": "//vendor.example:8443/",
		"https://vendor.example:/": "//vendor.example/", "https://中国.example/": "//xn--fiqs8s.example/", "https://１２７.０.０.１:80/": "//127.0.0.1:80/",
		"https://[0:0::1]:443/": "//[::1]:443/", "https://[::1]/": "//[::1]/", "https://[::FFFF:7F00:1]/": "//[::ffff:127.0.0.1]/",
	} {
		if u, err := (guard{}).parseURL(raw); err != nil || u.String() != "https:"+want {
			t.Errorf("%s: %v, %v", raw, u, err)
		}
	}
}
