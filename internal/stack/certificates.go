package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// RedisTLS are the PEM files with which a redis-server speaks TLS, and nothing else.
type RedisTLS struct {
	CAFile, CertFile, KeyFile string
	// AskClients makes it refuse who shows no certificate of that CA.
	AskClients bool
}

// certificateLifetime is that of a run's own certificate; each start makes a new one.
const certificateLifetime = 30 * 24 * time.Hour

// Authority is a private CA that exists in memory only: its key is never written.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority is a CA whose certificate ends when its last one does.
func NewAuthority(name string) (*Authority, error) {
	ca := &Authority{certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(certificateLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}}

	der, err := ca.sign(ca.certificate, &ca.key)
	if err != nil {
		return nil, err
	}

	ca.certificate, err = x509.ParseCertificate(der)

	return ca, err
}

// sign makes a key and its certificate; the CA's own is signed by itself.
func (a *Authority) sign(template *x509.Certificate, key **ecdsa.PrivateKey) (der []byte, err error) {
	*key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		template.NotBefore = time.Now().Add(-time.Hour)
		der, err = x509.CreateCertificate(rand.Reader, template, a.certificate, (*key).Public(), a.key)
	}

	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return der, nil
}

// Issue writes ca.pem, cert.pem and key.pem into dir: a certificate for names and
// addresses, good for servers and clients, until the time given (zero: as long as
// the CA).
func (a *Authority) Issue(dir string, until time.Time, names ...string) (*RedisTLS, error) {
	if until.IsZero() {
		until = a.certificate.NotAfter
	}

	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}

	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}

	var key *ecdsa.PrivateKey
	der, err := a.sign(template, &key)
	if err != nil {
		return nil, err
	}

	private, err := x509.MarshalPKCS8PrivateKey(key)
	files := &RedisTLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	err = errors.Join(err, os.MkdirAll(dir, 0o700),
		writePEM(files.CAFile, "CERTIFICATE", a.certificate.Raw),
		writePEM(files.CertFile, "CERTIFICATE", der),
		writePEM(files.KeyFile, "PRIVATE KEY", private))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}

	return files, nil
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// clientConfig is how this process checks the server, and shows itself where asked.
func (t *RedisTLS) clientConfig(addr string) (*tls.Config, error) {
	pemCA, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}

	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pemCA) {
		return nil, fmt.Errorf("%s holds no certificate", t.CAFile)
	}

	own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}

	host, _, err := net.SplitHostPort(addr)

	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, ServerName: host, MinVersion: tls.VersionTLS12}, err
}
