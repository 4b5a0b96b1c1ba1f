package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// certificate writes a self-signed one for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return certFile, keyFile
}

//rule:authentication/6 versioning/tls-1.2-or-higher-is
func TestTLS_FromVersion12On(t *testing.T) {
	w := newEnvWithoutRedis(t, func(s *settings) {
		s.VendorAPI.TLSCertFile, s.VendorAPI.TLSKeyFile = certificate(t)
	})
	url := "https" + strings.TrimPrefix(w.vendor, "http") + "/x"
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}}} //nolint:gosec // the certificate is this test's own
		resp, err := client.Get(url)
		if (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}

		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != 404 {
				t.Errorf("%s: %d", tls.VersionName(version), resp.StatusCode)
			}
		}

		client.CloseIdleConnections()
	}
}

// A certificate whose files are replaced is served without a restart; while the two
// do not belong together, or are not readable, the one before is.
func TestCertificate_IsReadAgainWhenItsFilesChange(t *testing.T) {
	t.Parallel()

	certFile, keyFile := certificate(t)
	c, err := openCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	c.every = 0
	served := func() *tls.Certificate {
		t.Helper()
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}

	first := served()
	if served() != first {
		t.Error("it was read again though nothing has changed")
	}

	freshCert, freshKey := certificate(t)
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}

		later := time.Now().Add(time.Minute) // whatever the file system's clock can tell apart
		if err := os.Chtimes(to, later, later); err != nil {
			t.Fatal(err)
		}
	}

	move(freshCert, certFile)
	if served() != first {
		t.Error("a certificate was served with another one's key")
	}

	move(freshKey, keyFile)
	second := served()
	if second == first {
		t.Error("the new certificate is not served")
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if served() != second {
		t.Error("without its file the certificate is gone")
	}
	if _, err := openCertificate(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a gateway starts without its certificate")
	}
}
