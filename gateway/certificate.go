package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateEvery is how often a handshake looks whether the files have changed.
const certificateEvery = 10 * time.Second

// servedCertificate is a listener's certificate, read again when its files change.
// Files that cannot be read, or of which only one has been replaced so far, leave the
// one before in force, with a line in the log.
type servedCertificate struct {
	certFile, keyFile string
	log               *slog.Logger
	every             time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	stamp   [2]fileStamp // of the files as they were read last
	looked  time.Time
}

// fileStamp distinguishes states of a file.
type fileStamp struct {
	modified time.Time
	size     int64
}

func openCertificate(certFile, keyFile string, log *slog.Logger) (*servedCertificate, error) {
	c := &servedCertificate{certFile: certFile, keyFile: keyFile, log: log, every: certificateEvery, looked: time.Now()}
	var err error
	if c.stamp, err = c.look(); err == nil {
		err = c.read()
	}
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return c, nil
}

func (c *servedCertificate) look() (stamp [2]fileStamp, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return stamp, err
		}
		stamp[i] = fileStamp{info.ModTime(), info.Size()}
	}
	return stamp, nil
}

func (c *servedCertificate) read() error {
	fresh, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.current = &fresh
	}
	return err
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
	stamp, err := c.look()
	if err == nil {
		if stamp == c.stamp {
			return
		}
		err = c.read()
	}
	if err != nil {
		c.log.Error("the new certificate cannot be used; the one before stays in force", "file", c.certFile, "error", err)
		return
	}
	c.stamp = stamp
	c.log.Info("certificate read again", "file", c.certFile, "expires", c.current.Leaf.NotAfter)
}
