package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// certificateEvery is how often a handshake reads the files again.
const certificateEvery = 10 * time.Second

// servedCertificate is a listener's certificate, which may be replaced while it runs.
// Files that cannot be read, or do not belong together, leave the one before in force,
// with a line in the log.
type servedCertificate struct {
	certFile, keyFile string
	log               *slog.Logger
	every             time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	looked  time.Time
}

func openCertificate(certFile, keyFile string, log *slog.Logger) (*servedCertificate, error) {
	current, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &servedCertificate{certFile: certFile, keyFile: keyFile, log: log, every: certificateEvery, current: &current, looked: time.Now()}, nil
}

// get is tls.Config's GetCertificate.
func (c *servedCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= c.every {
		c.looked = now
		c.refresh()
	}
	return c.current, nil
}

func (c *servedCertificate) refresh() {
	fresh, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	switch {
	case err != nil:
		c.log.Error("the new certificate cannot be used; the one before stays in force", "file", c.certFile, "error", err)
	case !slices.EqualFunc(fresh.Certificate, c.current.Certificate, bytes.Equal):
		c.current = &fresh
		c.log.Info("certificate read again", "file", c.certFile, "expires", fresh.Leaf.NotAfter)
	}
}
