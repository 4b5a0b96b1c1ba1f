package dispatch

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"syscall"

	"vendorapi/internal/webhook"
)

// guard keeps webhooks from reaching anything but the public internet: a
// vendor chooses the URL, and the name in it may resolve to anything.
type guard struct {
	// local allows http and loopback, for receivers on the developer's own
	// machine; nothing else that is special becomes allowed by it.
	local bool
}

// refusedAddress is a connection that the guard did not let happen.
type refusedAddress struct{ address string }

func (e *refusedAddress) Error() string { return e.address + " is not a public address" }

// allows judges an address that a connection is about to be made to.
func (g guard) allows(address netip.Addr) bool {
	return webhook.PublicAddress(address) || g.local && address.Unmap().IsLoopback()
}

// control is net.Dialer.Control: it sees every address after the name has been
// resolved and before the connection is made, so no name, no notation of a
// number and no changing answer of a name server gets past it.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || !g.allows(target.Addr()) {
		return &refusedAddress{address: address}
	}
	return nil
}

// parseURL reads an endpoint's URL at the time of sending: rules may have
// become stricter since it was registered.
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
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
