package sender

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/testenv/testserver"
)

// private stands for everything that a webhook must never reach: a listener on
// all addresses of this machine that counts the connections it gets.
func private(t *testing.T) *counting {
	t.Helper()
	l := listen(t, ":0")
	raw(t, l, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	for i, host := range []string{"127.0.0.1", "127.0.0.2"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(l.port())))
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		testserver.Await(t, "the listener to count", func() bool { return l.accepted.Load() == int32(i+1) })
	}

	l.accepted.Store(0)

	return l
}

// publicSender is the sender of production, which asks the name server. What
// its guard lets pass is not dialled but ends with errAllowed.
func publicSender(t *testing.T, names *nameServer) *Sender {
	t.Helper()
	s := New(publicOptions())
	s.dialer.Resolver = names.resolver()
	s.dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := s.guard.control(ctx, network, address, c); err != nil {
			return err
		}
		return errAllowed
	}

	t.Cleanup(s.CloseIdleConnections)

	return s
}

// ranges are those of the IANA registries of special-purpose addresses, of
// multicast, and what clouds have put elsewhere; written down apart from the
// guard's own list.
var ranges = []string{
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.0.192/32",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32",
	"168.63.129.16/32", "169.254.169.254/32", "169.254.170.2/32", "100.100.100.200/32",
	"::/128", "::1/128", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64",
	"2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32",
	"2001:4:112::/48", "2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48",
	"3fff::/20", "5f00::/16", "fc00::/7", "fd00:ec2::254/128", "fd20:ce::254/128", "fe80::/10", "fec0::/10", "ff00::/8",
	"::ffff:0.0.0.0/104", "::ffff:10.0.0.0/104", "::ffff:100.64.0.0/106", "::ffff:127.0.0.0/104", "::ffff:169.254.0.0/112",
	"::ffff:172.16.0.0/108", "::ffff:192.168.0.0/112", "::ffff:224.0.0.0/100",
	"64:ff9b::7f00:1/128", "64:ff9b::a9fe:a9fe/128", "64:ff9b::a00:0/104", "2002:7f00:1::/48", "2002:a9fe:a9fe::/48",
	"2002:a00:1::1/128", "2001:0:53aa:64c:0:0:80ff:fffe/128",
}

// samples are the ends of every range and its middle.
func samples() (list []netip.Addr) {
	for _, text := range ranges {
		p := netip.MustParsePrefix(text)
		first, last := p.Masked().Addr().AsSlice(), p.Masked().Addr().AsSlice()
		middle := p.Masked().Addr().AsSlice()
		for bit := p.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
			if bit%2 == 0 {
				middle[bit/8] |= 0x80 >> (bit % 8)
			}
		}

		for _, raw := range [][]byte{first, middle, last} {
			address, _ := netip.AddrFromSlice(raw)
			list = append(list, address)
		}
	}

	return list
}

// neighbours are ordinary addresses next to special ranges.
var neighbours = []string{
	"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
	"168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
	"192.0.1.0", "192.0.3.0", "192.31.195.255", "192.52.194.0", "192.88.98.255", "192.88.100.0", "192.167.255.255",
	"192.169.0.0", "192.175.47.255", "198.17.255.255", "198.20.0.0", "198.51.99.255", "203.0.114.0", "223.255.255.255",
	"2001:200::", "2001:db7:ffff::", "2001:db9::", "2003::", "2606:4700::1111", "2620:4f:7fff::1", "2620:4f:8001::1",
	"3ffe:ffff::", "3fff:1000::",
}

func TestSSRF_AddressesOfANameServer(t *testing.T) {
	target := private(t)
	special := samples()
	answers := special
	for _, text := range neighbours {
		answers = append(answers, netip.MustParseAddr(text))
	}

	names := newNameServer(t, func(name string, _ int) record {
		var i int
		fmt.Sscanf(name, "n%d.", &i)
		return record{addresses: answers[i : i+1], long: i%7 == 0}
	})

	s := publicSender(t, names)
	for i, address := range answers {
		a := s.Send(t.Context(), Request{URL: fmt.Sprintf("https://n%d.vendor.test:%d/hook", i, target.port()), Header: signedHeader(), Body: statusBody})
		want := ClassRefused
		if i >= len(special) {
			want = ClassConnect // errAllowed
		}
		if a.Class != want || a.Status != 0 {
			t.Errorf("a name of %s: %+v", address, a)
		}
	}

	t.Logf("%d special and %d ordinary addresses", len(special), len(neighbours))
	if n := target.accepted.Load(); n != 0 {
		t.Fatalf("%d connections to private addresses", n)
	}
}

func TestSSRF_AddressesInAURL(t *testing.T) {
	target := private(t)
	// Whatever looks like a name is answered with this machine.
	s := publicSender(t, newNameServer(t, func(string, int) record { return addresses("127.0.0.1", "::1") }))
	for _, host := range hosts() {
		for _, port := range []int{target.port(), 443} {
			url := fmt.Sprintf("https://%s:%d/hook", host, port)
			a := s.post(t, url)
			if a.Class != ClassRefused && a.Class != ClassURL || a.Status != 0 {
				t.Errorf("%s: %+v", url, a)
			}
		}
	}

	t.Logf("%d hosts", len(hosts()))
	if n := target.accepted.Load(); n != 0 {
		t.Fatalf("%d connections to private addresses", n)
	}
}

// hosts are the special addresses and the ways to write them in a URL.
func hosts() (list []string) {
	for _, address := range samples() {
		switch {
		case address.Is4():
			list = append(list, notations(address)...)
		case address.Is4In6():
			list = append(list, "["+address.String()+"]", "["+strings.ToUpper(address.StringExpanded())+"]",
				fmt.Sprintf("[::ffff:%s%%25eth0]", address.Unmap()))
		default:
			list = append(list, "["+address.String()+"]", "["+strings.ToUpper(address.StringExpanded())+"]",
				"["+address.String()+"%25eth0]", "["+address.String()+"%251]")
		}
	}

	return append(list,
		"localhost", "LOCALHOST", "localhost.", "foo.localhost", "localhost.localdomain", "ip6-localhost",
		"loc\u00adalhost.test", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "127.0.0.1.nip.test", "metadata.google.internal", "xn--127001-test.test",
		"127%2E0%2E0%2E1", "%31%32%37.0.0.1", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1", "127。0。0。1", "１２７．０．０．１", "①②⑦.⓪.⓪.①",
		"2606:4700::1111", "[2606:4700::1111%25eth0]", "[127.0.0.1]", "[::1", "::1]", "[::ffff:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]",
		"[::ffff:127.1]", "[::ffff:0x7f.0.0.1]", "[v1.fe80::a]", "[1.2.3.4%25lo]", "[]", "[::1%25]", "127.0.0.1%25lo",
		"vendor.test@127.0.0.1", "127.0.0.1:80@vendor.test", "127.0.0.1\\@vendor.test", "vendor.test\\.127.0.0.1",
		"127.0.0.1#vendor.test", "127.0.0.1?vendor.test", "127.0.0.1\t", "127.0.0.1\x00.vendor.test", "127.0.0.1%00.vendor.test",
		" 127.0.0.1", "127.0.0.1 ", ".", "..", "vendor..test", "", "0", "00", "0x", "0x0", "0.", "1e3", "0x7f000001.", "0X7F.1",
		strings.Repeat("a", 64)+".test", strings.Repeat("a.", 130)+"test",
	)
}

// notations are the ways in which resolvers, libraries and browsers write an
// IPv4 address.
func notations(address netip.Addr) []string {
	b := address.As4()
	number := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	dotted := address.String()
	wide := strings.NewReplacer("0", "０", "1", "１", "2", "２", "3", "３", "4", "４", "5", "５", "6", "６", "7", "７", "8", "８", "9", "９")
	return []string{
		dotted, dotted + ".", dotted + "..",
		strconv.FormatUint(uint64(number), 10),                       // 2130706433
		fmt.Sprintf("0x%08x", number), fmt.Sprintf("0X%08X", number), // 0x7f000001
		fmt.Sprintf("0%o", number),                                 // 017700000001
		fmt.Sprintf("%#o.%#o.%#o.%#o", b[0], b[1], b[2], b[3]),     // 0177.0.0.01
		fmt.Sprintf("%#x.%#x.%#x.%#x", b[0], b[1], b[2], b[3]),     // 0x7f.0x0.0x0.0x1
		fmt.Sprintf("%#x.%d.%#o.%d", b[0], b[1], b[2], b[3]),       // each in its own way
		fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3]), // 127.000.000.001
		fmt.Sprintf("%d.%d", b[0], number&0xffffff),                // 127.1
		fmt.Sprintf("%d.%d.%d", b[0], b[1], number&0xffff),         // 127.0.1
		fmt.Sprintf("%#x.%d", b[0], number&0xffffff),               // 0x7f.1
		strconv.FormatUint(uint64(number)+1<<32, 10),               // wraps around
		wide.Replace(dotted), strings.ReplaceAll(dotted, ".", "。"), // IDNA
		strings.ReplaceAll(dotted, ".", "%2e"), strings.ReplaceAll(dotted, ".", "．"), // percent-encoded, full-width dots
		"[::ffff:" + dotted + "]", "[::" + dotted + "]", // mapped, compatible
		fmt.Sprintf("[::ffff:%x:%x]", number>>16, number&0xffff),
		fmt.Sprintf("[::ffff:0:%s]", dotted),                                         // translated
		fmt.Sprintf("[64:ff9b::%s]", dotted), fmt.Sprintf("[64:ff9b:1::%s]", dotted), // NAT64
		fmt.Sprintf("[2002:%x:%x::1]", number>>16, number&0xffff),                              // 6to4
		fmt.Sprintf("[2001:0:4136:e378:8000:63bf:%x:%x]", ^number>>16&0xffff, ^number&0xffff),  // Teredo
		fmt.Sprintf("[fe80::5efe:%s]", dotted), fmt.Sprintf("[fe80::5efe:%s%%25eth0]", dotted), // ISATAP
		fmt.Sprintf("[::FFFF:%s]", dotted), "[" + dotted + "]", fmt.Sprintf("[::%s%%250]", dotted), // brackets, zones
	}
}

// A sandbox lets http and this machine through, and nothing else.
//
//rule:webhooks/urls-are-https-and-public
func TestSSRF_TheSandboxAllowsLoopbackAlone(t *testing.T) {
	names := newNameServer(t, func(string, int) record { return addresses("10.0.0.1", "169.254.169.254", "fd00::1") })
	s := New(localOptions())
	s.dialer.Resolver = names.resolver()
	for _, scheme := range []string{"http", "https"} {
		for _, host := range hosts() {
			if strings.ContainsAny(host, "#?") {
				continue // what follows is no host
			}

			u, err := s.guard.parseURL(scheme + "://" + host + "/")
			if err == nil && (u.Hostname() == "localhost" || isLoopback(u.Hostname())) {
				continue
			}
			if a := s.Send(t.Context(), Request{URL: scheme + "://" + host + "/", Header: signedHeader()}); a.Class != ClassRefused && a.Class != ClassURL {
				t.Errorf("%s://%s: %+v", scheme, host, a)
			}
		}
	}
}

// In the sandbox, too, no webhook reaches what the system itself listens on, by
// whatever name of this machine: the embedded ClickHouse executed a POST to
// /?query=INSERT….
func TestSSRF_TheSandboxReachesNothingOfOurOwn(t *testing.T) {
	var reached atomic.Int32
	serve := func(network, addr string) string {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { l.Close() })
		go func() { // ends with the listener
			_ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
		}()
		_, port, _ := net.SplitHostPort(l.Addr().String())

		return port
	}

	own, other := serve("tcp", ":0"), serve("tcp", ":0")
	port, err := strconv.ParseUint(own, 10, 16)
	if err != nil {
		t.Fatal(err)
	}

	options := localOptions()
	options.OwnPorts = []uint16{8080, uint16(port)}
	s := New(options)
	send := func(host, port string) Answer {
		return s.Send(t.Context(), Request{URL: "http://" + host + ":" + port + "/?query=INSERT+INTO+delivery.schema_migrations+VALUES+(99)", Header: signedHeader()})
	}
	for _, host := range []string{"127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "127.1", "2130706433"} {
		if a := send(host, own); a.Class != ClassRefused && a.Class != ClassURL {
			t.Errorf("%s: %+v", host, a)
		}
	}

	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
	if a := send("127.0.0.1", other); !a.OK() || reached.Load() != 1 {
		t.Errorf("a receiver of the vendor: %+v", a)
	}
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

func TestSSRF_AnswersThatChange(t *testing.T) {
	target := private(t)
	own := "169.254.169.254"
	if list, err := net.InterfaceAddrs(); err == nil { // an address of this machine that is not loopback, if there is one
		for _, a := range list {
			if ip := a.(*net.IPNet).IP; !ip.IsLoopback() && ip.IsPrivate() {
				own = ip.String()
			}
		}
	}

	const public = "93.184.216.34"
	for name, test := range map[string]struct {
		answers []record // the last one stays
		classes []string
	}{
		"public, then private": {[]record{addresses(public), addresses("127.0.0.1")}, []string{ClassConnect, ClassRefused, ClassRefused}},
		"in turns":             {[]record{addresses(public), addresses(own), addresses(public), addresses("::1")}, []string{ClassConnect, ClassRefused, ClassConnect, ClassRefused}},
		"private A, public AAAA that moves": {[]record{addresses("2606:4700::1111"), addresses("127.0.0.1", "::1")},
			[]string{ClassConnect, ClassRefused}},
		"an alias of localhost":          {[]record{{alias: "localhost.", addresses: addresses("127.0.0.1", "::1").addresses}}, []string{ClassRefused}},
		"an alias, public then private":  {[]record{{alias: "a.test.", addresses: addresses(public).addresses}, {alias: "b.test.", addresses: addresses(own).addresses}}, []string{ClassConnect, ClassRefused}},
		"IPv4 in the clothes of IPv6":    {[]record{addresses("::ffff:127.0.0.1")}, []string{ClassRefused}},
		"many private ones, over TCP":    {[]record{{addresses: addresses("127.0.0.1", "127.0.0.2", "::1", own).addresses, long: true}}, []string{ClassRefused}},
		"an alias without any addresses": {[]record{{alias: "localhost."}}, []string{ClassDNS}},
	} {
		t.Run(name, func(t *testing.T) {
			names := newNameServer(t, func(_ string, asked int) record { return test.answers[min(asked, len(test.answers)-1)] })
			s := publicSender(t, names)
			for i, want := range test.classes {
				a := s.Send(t.Context(), Request{URL: fmt.Sprintf("https://vendor.test:%d/", target.port()), Header: signedHeader(), Body: statusBody})
				if a.Class != want {
					t.Errorf("send %d: %+v", i, a)
				}
			}
		})
	}

	if n := target.accepted.Load(); n != 0 {
		t.Fatalf("%d connections to private addresses", n)
	}
}

// Of a mixed answer only the public addresses are tried, whatever their order.
func TestSSRF_MixedAnswers(t *testing.T) {
	target := private(t)
	for _, answer := range [][]string{
		{"93.184.216.34", "127.0.0.1"}, {"127.0.0.1", "93.184.216.34"}, {"::1", "93.184.216.34"}, {"2606:4700::1111", "127.0.0.1"},
		{"10.0.0.1", "127.0.0.1", "2606:4700::1111", "::1", "fd00::1"}, {"::ffff:127.0.0.1", "93.184.216.34"},
	} {
		names := newNameServer(t, func(string, int) record { return addresses(answer...) })
		s := New(publicOptions())
		s.dialer.Resolver = names.resolver()
		var passed atomic.Int32
		s.dialer.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
			if err := s.guard.control(ctx, network, address, c); err != nil {
				return err
			}
			if !strings.HasPrefix(address, "93.184.216.34:") && !strings.HasPrefix(address, "[2606:4700::1111]:") {
				t.Errorf("%v: %s passed", answer, address)
			}

			passed.Add(1)
			return errAllowed
		}

		a := s.Send(t.Context(), Request{URL: fmt.Sprintf("https://vendor.test:%d/", target.port()), Header: signedHeader(), Body: statusBody})
		if a.OK() || a.Status != 0 || passed.Load() == 0 {
			t.Errorf("%v: %+v, %d passed", answer, a, passed.Load())
		}
	}

	if n := target.accepted.Load(); n != 0 {
		t.Fatalf("%d connections to private addresses", n)
	}
}

// A receiver that has been accepted moves: what is kept open serves on, and the
// next connection is refused.
func TestSSRF_AReceiverThatMovesIntoTheNetwork(t *testing.T) {
	receiver := start(t, listen(t, "127.0.0.1:0"), nil, false, func(http.ResponseWriter, *http.Request) {})
	var moved atomic.Bool
	names := newNameServer(t, func(string, int) record {
		if moved.Load() {
			return addresses("10.0.0.1", "169.254.169.254")
		}
		return addresses("127.0.0.1")
	})

	s := New(localOptions())
	s.dialer.Resolver = names.resolver()
	s.lifetime, s.pool.timeout = 50*time.Millisecond, 10*time.Millisecond
	_, port, _ := net.SplitHostPort(receiver.Listener.Addr().String())
	url := "http://vendor.test:" + port + "/"
	if a := s.post(t, url); !a.OK() {
		t.Fatalf("%+v", a)
	}

	moved.Store(true)
	testserver.Await(t, "the connection's end", func() bool { return !s.post(t, url).OK() })
	if a := s.post(t, url); a.Class != ClassRefused {
		t.Errorf("%+v", a)
	}
}

//rule:webhooks/timeout-10-s-only-2xx
func TestSSRF_RedirectsAreNotFollowed(t *testing.T) {
	target := private(t)
	places := []string{
		fmt.Sprintf("http://127.0.0.1:%d/", target.port()), fmt.Sprintf("https://127.0.0.1:%d/", target.port()),
		fmt.Sprintf("http://[::1]:%d/", target.port()), fmt.Sprintf("//127.0.0.1:%d/", target.port()),
		fmt.Sprintf("http://2130706433:%d/", target.port()), fmt.Sprintf("gopher://127.0.0.1:%d/_GET", target.port()),
		fmt.Sprintf("ftp://127.0.0.1:%d/", target.port()), "file:///etc/passwd", "http://169.254.169.254/latest/meta-data/",
		"data:text/plain,x", "/again", "", "::",
	}

	var requests atomic.Int32
	authority := newAuthority(t)
	for _, h2 := range []bool{false, true} {
		receiver := start(t, listen(t, "127.0.0.1:0"), authority.issue(t, time.Now().Add(time.Hour), "127.0.0.1"), h2, func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			var code, place int
			fmt.Sscanf(r.URL.Path, "/%d/%d", &code, &place)
			w.Header().Set("Location", places[place])
			w.Header().Set("Refresh", "0; url="+places[place])
			w.Header().Set("Alt-Svc", fmt.Sprintf(`h2="127.0.0.1:%d"; ma=3600`, target.port()))
			w.Header().Set("Content-Location", places[place])
			w.WriteHeader(code)
		})

		s := New(localOptions())
		s.tls.RootCAs = authority.roots()
		for _, code := range []int{300, 301, 302, 303, 305, 307, 308, 200, 401} {
			for place := range places {
				before := requests.Load()
				a := s.Send(t.Context(), Request{URL: fmt.Sprintf("%s/%d/%d", receiver.URL, code, place), Header: signedHeader(), Body: statusBody})
				if a.OK() != (code == 200) || a.Status != code || requests.Load() != before+1 {
					t.Errorf("%d to %q: %+v after %d requests", code, places[place], a, requests.Load()-before)
				}
			}
		}

		s.CloseIdleConnections()
	}

	if n := target.accepted.Load(); n != 0 {
		t.Fatalf("%d connections to private addresses", n)
	}
}
