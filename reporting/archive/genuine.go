package archive

import (
	"errors"
	"fmt"
	"net/http"
)

// genuine lets pass what ClickHouse has answered. The driver takes any 200 for
// success without a look at the body: a captive portal or a proxy's page of
// maintenance would make rows count as stored that nobody has.
type genuine struct{ http.RoundTripper }

var errImpostor = errors.New("something answered that is not ClickHouse")

func (g genuine) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	// Every answer of a server names the query and the server; some proxies keep
	// only one of the two.
	if resp.Header.Get("X-ClickHouse-Query-Id") != "" || resp.Header.Get("X-ClickHouse-Server-Display-Name") != "" {
		return resp, nil
	}
	return nil, errors.Join(fmt.Errorf("%w: %s, %s", errImpostor, resp.Status, resp.Header.Get("Content-Type")), resp.Body.Close())
}
