package service

import "testing"

func TestPublicURLMistake_RefusesWhatOthersCannotOpen(t *testing.T) {
	for _, text := range []string{
		"https://teslimat.vendorapi.com.tr/track",
		"https://delivery.istanbul",
		"https://track.vendorapi.com.tr.:8443/track",
		"https://TRACK.vendorapi.com.tr:65535",
		"https://teslimat.kurye-şirketi.com.tr/track",
		"https://vendorapi.github.io/track",
		"https://github.io/track", // whoever gives names below its own has pages, too
		"https://ec2-18-196-1-2.eu-central-1.compute.amazonaws.com",
		"https://testing.vendorapi.com.tr",
		"https://example.vendorapi.com.tr",
		"https://yours.com.tr",
		"https://93.184.216.34/track",
		"https://[2606:2800:220:1::1]/track",
	} {
		if err := PublicURLMistake(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}

	for kind, texts := range map[string][]string{
		"no https": {"http://teslimat.vendorapi.com.tr/track", "HTTP://teslimat.vendorapi.com.tr", "ftp://teslimat.vendorapi.com.tr/track"},
		"no host":  {"https://%zz/track", "https:///track", "https://a..b", "https://a..com.tr", "https://.vendorapi.com.tr", "https://vendorapi.com.tr..", "https://a*b.com.tr"},
		"no port":  {"https://vendorapi.com.tr:0", "https://vendorapi.com.tr:99999/track", "https://93.184.216.34:65536"},
		"this machine": {
			"https://localhost/track", "https://LOCALHOST:8490/track", "https://localhost.:8490/track", "https://track.localhost/track",
			"https://localhost.localdomain", "https://localhost6.localdomain6", "https://localhost.vendorapi.com.tr",
			"https://127.0.0.1:8490/track", "https://127.9.8.7/track", "https://0.0.0.0/track", "https://[::1]:8490/track", "https://[::]/track",
			"https://[::ffff:127.0.0.1]/track",
		},
		"a number": {"https://127.1/track", "https://2130706433/track", "https://0x7f000001/track", "https://0177.0.0.1"},
		"a special address": {
			"https://10.0.0.7/track", "https://192.168.1.4/track", "https://172.17.0.1/track", "https://169.254.1.1/track",
			"https://100.64.0.1", "https://192.0.2.1", "https://198.51.100.7", "https://203.0.113.9", "https://198.18.0.1", "https://198.19.255.255",
			"https://240.0.0.1", "https://255.255.255.255", "https://224.0.0.1", "https://0.1.2.3", "https://192.0.0.8",
			"https://[fe80::1%25eth0]/track", "https://[fd00::1]/track", "https://[2001:db8::1]", "https://[3fff::1]", "https://[ff02::1]",
			"https://[64:ff9b::7f00:1]", "https://[64:ff9b::a00:7]", "https://[64:ff9b:1::1]", "https://[2002:7f00:1::]", "https://[100::1]",
		},
		"a name of this network": {
			"https://balancer:8491/track", "https://track.vendorapi.internal/track", "https://machine.local/track", "https://track.lan", "https://track.home",
			"https://track.home.arpa", "https://track.corp", "https://portal.intranet", "https://track.private", "https://track.localdomain",
			"https://gateway.default.svc", "https://gateway.default.svc.cluster.local", "https://track.onion", "https://track.alt", "https://1.0.0.127.in-addr.arpa",
		},
		"a name that holds an address": {
			"https://127.0.0.1.nip.io", "https://track.10-0-0-7.sslip.io", "https://track.xip.io", "https://track.localtest.me", "https://lvh.me",
		},
		"an ending": {"https://com.tr", "https://com", "https://co.uk:8443/track"},
		"an example": {
			"https://delivery.example", "https://track.test", "https://track.invalid", "https://example.com", "https://track.example.com/track",
			"https://example.net", "https://a.b.example.org", "https://example.com.tr", "https://domain.tld", "https://your-domain.com",
			"https://track.yourdomain.com.tr", "https://your_company.com", "https://my-domain.com.tr", "https://changeme.com", "https://change-me.com.tr",
			"https://track.domain.com", "https://alanadiniz.com.tr", "https://örnek.com.tr", "https://alan-adınız.com",
		},
	} {
		for _, text := range texts {
			if PublicURLMistake(text) == nil {
				t.Errorf("%s: %s is accepted", kind, text)
			}
		}
	}
}

func TestPublicListener_RefusesPlainHTTPWithoutABalancer(t *testing.T) {
	for _, c := range []struct {
		addr     string
		tls      bool
		proxies  string
		perIP    int
		mistaken bool
	}{
		{addr: "0.0.0.0:8080", perIP: 512, mistaken: true},
		{addr: ":8080", perIP: 512, mistaken: true},
		{addr: "[::]:8080", perIP: 512, mistaken: true},
		{addr: "10.0.0.7:8080", perIP: 512, mistaken: true},
		{addr: "gateway:8080", perIP: 512, mistaken: true},
		{addr: "127.0.0.1:8080", perIP: 512},
		{addr: "[::1]:8080", perIP: 512},
		{addr: "localhost:8080", perIP: 512},
		{addr: "0.0.0.0:8443", tls: true, perIP: 512},
		{addr: "0.0.0.0:8080", proxies: "172.16.0.0/12,192.168.0.0/16", perIP: 512},
		{addr: "0.0.0.0:8080", proxies: "fc00::/7, 10.0.0.0/8", perIP: 512},
		{addr: "0.0.0.0:8080", perIP: 0}, // a balancer that sends no PROXY header
		{addr: "0.0.0.0:8080", proxies: "0.0.0.0/0", perIP: 512, mistaken: true},
		{addr: "0.0.0.0:8080", proxies: "10.0.0.1,::/0", perIP: 0, mistaken: true},
		{addr: "0.0.0.0:8443", tls: true, proxies: "0.0.0.0/1,128.0.0.0/1", perIP: 512, mistaken: true},
	} {
		l := PublicListener{Addr: c.addr, TLS: c.tls, Proxies: []string{c.proxies}, ConnectionsPerIP: c.perIP, ProxiesKey: "x.proxies", IPKey: "y"}
		if err := l.Mistakes(); (err != nil) != c.mistaken {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
