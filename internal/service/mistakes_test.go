package service

import "testing"

func TestPublicURLMistake_RefusesWhatOthersCannotOpen(t *testing.T) {
	for text, mistake := range map[string]bool{
		"https://teslimat.example.com/track":     false,
		"https://delivery.example":               false,
		"https://track.example.com.:8443/track":  false,
		"https://93.184.216.34/track":            false,
		"https://[2606:2800:220:1::1]/track":     false,
		"http://teslimat.example.com/track":      true,
		"HTTP://teslimat.example.com":            true,
		"https://localhost/track":                true,
		"https://LOCALHOST:8490/track":           true,
		"https://localhost.:8490/track":          true,
		"https://track.localhost/track":          true,
		"https://127.0.0.1:8490/track":           true,
		"https://127.9.8.7/track":                true,
		"https://127.1/track":                    true,
		"https://2130706433/track":               true,
		"https://0x7f000001/track":               true,
		"https://0.0.0.0/track":                  true,
		"https://[::1]:8490/track":               true,
		"https://[::]/track":                     true,
		"https://[::ffff:127.0.0.1]/track":       true,
		"https://10.0.0.7/track":                 true,
		"https://192.168.1.4/track":              true,
		"https://172.17.0.1/track":               true,
		"https://169.254.1.1/track":              true,
		"https://[fe80::1%25eth0]/track":         true,
		"https://[fd00::1]/track":                true,
		"https://balancer:8491/track":            true,
		"https://track.vendorapi.internal/track": true,
		"https://machine.local/track":            true,
		"ftp://teslimat.example.com/track":       true,
		"https://%zz/track":                      true,
	} {
		if err := PublicURLMistake(text); (err != nil) != mistake {
			t.Errorf("%s: %v", text, err)
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
