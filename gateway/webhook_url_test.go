package main

import (
	"strings"
	"testing"
)

// What the worker's dialer refuses in the end is refused at once where the text
// alone shows it, in every notation that a resolver or a browser would read.
func TestWebhookURL_NotationsOfAddresses(t *testing.T) {
	for _, host := range []string{
		"2130706433", "017700000001", "0x7f000001", "0X7F000001", "127.1", "127.0.1", "0x7f.1", "0177.0.0.1", "0177.0.0.01",
		"0x7f.0x0.0x0.0x1", "127.000.000.001", "127.0.0.1.", "127.0.0.1..", "0", "0.", "3232235521", "0xa9.0xfe.0xa9.0xfe",
		"１２７.０.０.１", "127。0。0。1", "１２７．０．０．１", "①②⑦.⓪.⓪.①", "２１３０７０６４３３", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1",
		"127%2e0%2e0%2e1", "%31%32%37.0.0.1", "127.0.0.1%00.vendor.com", "[::ffff:127.0.0.1]", "[::FFFF:7F00:1]", "[::127.0.0.1]",
		"[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::1]", "[2001:0:53aa:64c:0:0:80ff:fffe]",
		"[fe80::1%25eth0]", "[fe80::5efe:127.0.0.1]", "[2606:4700::1111%25eth0]", "[::ffff:10.0.0.1%25eth0]", "[fd00:ec2::254]",
		"[127.0.0.1]", "[::]", "[::1", "::1", "192.31.196.1", "192.0.0.192", "[2620:4f:8000::1]", "[3fff::1]", "[5f00::1]",
		"ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "LOCALHOST", "localhost.", "loc\u00adalhost", "hook.LocalHost.", "metadata.google.internal", "METADATA.GOOGLE.INTERNAL.",
		"vendor.com@127.0.0.1", "127.0.0.1\\@vendor.com", "vendor.com\\.127.0.0.1", "vendor..com", ".vendor.com", "vendor.com..",
		"vendor.com%20", "vendor,com", "vendor.com:80:80", "vendor", strings.Repeat("a", 64) + ".com",
	} {
		if fault := webhookURLFault("https://"+host+"/hook", false); fault == "" {
			t.Errorf("%s is accepted", host)
		}
	}
	for _, host := range []string{
		"vendor.com", "VENDOR.COM", "vendor.com.", "a_b.vendor.com", "1.vendor.com", "0x7f.vendor.com", "127.0.0.1.vendor.com",
		"ÇİĞKÖFTE.com", "中国。com", "xn--fiqs8s.com", "8.8.8.8", "８.８.８.８", "[2606:4700::1111]", "[2606:4700:0:0::1111]", "vendor.com:8443",
	} {
		if fault := webhookURLFault("https://"+host+"/hook", false); fault != "" {
			t.Errorf("%s: %s", host, fault)
		}
	}
}
