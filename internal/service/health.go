package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// askTimeout bounds Ask; it is longer than a readiness takes at most.
const askTimeout = 5 * time.Second

// Ask puts the question /readyz to the program of this machine that listens at
// addr, with TLS if secure. It is the health check of a container that holds
// nothing but the program. The answer is nil for 200, else the reason.
func Ask(ctx context.Context, addr string, secure bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	url := "http://" + reachable(addr) + "/readyz"
	transport := &http.Transport{}
	if secure {
		url = "https" + strings.TrimPrefix(url, "http")
		// The certificate has the name that others reach the listener by. Nothing
		// is told to whoever answers, and all that is believed is "ready".
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return fmt.Errorf("ask for readiness: %w", err)
	}
	defer resp.Body.Close()
	reason, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(reason)))
	}
	return nil
}

// reachable turns an address to listen on into one to call: a wildcard means
// every interface, loopback included.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr // the request fails and says why
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
