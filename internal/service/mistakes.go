package service

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"vendorapi/internal/config"
	"vendorapi/internal/webhook"
)

// What production refuses although it is well-formed, because it can only be a mistake.

// PublicURLMistake returns why people elsewhere cannot use a base URL that they are given,
// or nil.
func PublicURLMistake(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return errors.New("no URL")
	}

	if u.Scheme != "https" {
		return errors.New("production wants https://")
	}

	if u.Port() != "" {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%s is no port", u.Port())
		}
	}

	name, address, err := webhook.ParseHost(u.Hostname())
	if err != nil {
		return errors.New("the host is neither a name nor an address")
	}

	if name == "" {
		return addressMistake(address)
	}

	return nameMistake(name)
}

func addressMistake(address netip.Addr) error {
	plain := address.Unmap()
	switch {
	case plain.IsLoopback() || plain.IsUnspecified():
		return fmt.Errorf("%s is the machine of whoever opens it", address)
	case !webhook.PublicAddress(address):
		return fmt.Errorf("%s is no public address; others cannot reach it", address)
	}
	return nil
}

// networkNames end names that the list of public suffixes has, but under which no public web
// server can stand: .arpa is for the network's own records, home.arpa for a home's network
// (RFC 8375), .onion for Tor.
var networkNames = []string{"arpa", "onion"}

// addressNames end names that lead to an address of one's own network, either the address
// that is part of the name, as in 10.0.0.7.nip.io, or 127.0.0.1.
var addressNames = []string{"nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "vcap.me", "lacolhost.com", "traefik.me", "local.gd"}

// placeholderNames are what documents call the domain that a reader has to fill in, without
// hyphens, in English and in Turkish; example.com is reserved for that (RFC 2606).
var placeholderNames = []string{
	"example", "domain", "domainname", "hostname", "yourdomain", "yourdomainname", "yourhost", "yourcompany", "yoursite", "yourserver",
	"mydomain", "mycompany", "changeme", "changethis", "replaceme", "placeholder",
	"ornek", "örnek", "alanadi", "alanadı", "alanadiniz", "alanadınız", "sirketiniz", "şirketiniz", "firmaniz", "firmanız",
	"siteniz", "siteadi", "siteadı", "degistir", "değiştir", "degistirin", "değiştirin",
}

// nameMistake returns why the name of a host, in the form that name servers are asked for,
// is none that everybody can look up. A top-level domain that the list of public suffixes
// lacks belongs to one network (.lan, .corp, .internal, Kubernetes' .svc) or to nobody
// (.test, .example, .tld).
func nameMistake(name string) error {
	suffix, isOfICANN := publicsuffix.PublicSuffix(name)
	isPublic := isOfICANN || strings.Contains(suffix, ".")
	labels := strings.Split(name, ".")

	switch {
	case slices.Contains(labels, "localhost"):
		return errors.New("localhost is the machine of whoever opens it")
	case !isPublic || endsWithOneOf(name, networkNames):
		return errors.New("a name that at most this network knows; others cannot reach it")
	case name == suffix && isOfICANN:
		return fmt.Errorf("%s is what names end with, and no name of a host", name)
	case endsWithOneOf(name, addressNames):
		return errors.New("a name that stands for an address of this network or machine")
	case slices.Contains(placeholderNames, registeredLabel(name, suffix)):
		return errors.New("a placeholder; fill in your own domain")
	}

	return nil
}

// endsWithOneOf reports whether a name is one of the domains or lies below one.
func endsWithOneOf(name string, domains []string) bool {
	return slices.ContainsFunc(domains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

// registeredLabel returns the label before a public suffix as people read it and without
// hyphens: "örnek" of track.xn--rnek-5qa.com.tr, "yourdomain" of your-domain.com.
func registeredLabel(name, suffix string) string {
	owner := strings.TrimSuffix(strings.TrimSuffix(name, suffix), ".")
	label := owner[strings.LastIndex(owner, ".")+1:]

	shown, err := idna.ToUnicode(label)
	if err != nil {
		return label
	}
	return strings.NewReplacer("-", "", "_", "").Replace(shown)
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
