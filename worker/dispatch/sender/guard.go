package sender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"vendorapi/internal/webhook"
)

// guard lets webhooks reach the public internet only, whatever a vendor's URL resolves to.
type guard struct {
	// local allows http and loopback, for receivers on the developer's own machine.
	local bool
	// own are the system's loopback ports, which may trust whoever is on this machine.
	own []uint16
}

// refusedAddress says why the guard has prevented a connection.
type refusedAddress string

func (e refusedAddress) Error() string { return string(e) }

func (g guard) allows(target netip.AddrPort) bool {
	if webhook.PublicAddress(target.Addr()) {
		return true
	}
	return g.local && target.Addr().Unmap().IsLoopback() && !slices.Contains(g.own, target.Port())
}

// control is net.Dialer.ControlContext, called with each resolved address before the connection.
func (g guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	switch {
	case err == nil && g.allows(target):
	case g.local && target.Addr().Unmap().IsLoopback(): // where other ports are allowed
		return refusedAddress(address + " is one of the service's own ports")
	default:
		return refusedAddress(address + " is not a public address")
	}

	reached(ctx, connecting)

	return nil
}

// parseURL checks an endpoint's URL again, whose rules may have become stricter. The host becomes
// an address, or a name in ASCII.
func (g guard) parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("not a URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !g.local):
		return nil, fmt.Errorf("scheme %q is not https", u.Scheme)
	case u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("no host")
	case u.User != nil:
		return nil, errors.New("credentials in a URL are not sent")
	}

	name, address, err := webhook.ParseHost(u.Hostname())
	if err != nil {
		return nil, fmt.Errorf("the host is %w", err)
	}

	if address.IsValid() {
		name = address.String()
	}

	u.Host, u.Fragment, u.RawFragment = joinHost(name, u.Port()), "", ""

	return u, nil
}

// joinHost is the authority of a URL. An empty port stands for the scheme's.
func joinHost(host, port string) string {
	switch {
	case port != "":
		return net.JoinHostPort(host, port)
	case strings.IndexByte(host, ':') >= 0:
		return "[" + host + "]"
	}
	return host
}
