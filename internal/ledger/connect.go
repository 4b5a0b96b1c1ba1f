package ledger

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Check judges a configuration as far as that is possible without Redis: the
// form of the URL, the certificates' files, the environment and the number of
// partitions. It shows no part of a URL, which may hold a password.
func (c Config) Check() error {
	_, unknown := environmentLetter(c.Environment)
	var misfit error
	if c.Partitions < 0 || c.Partitions > delivery.MaxPartitions {
		misfit = fmt.Errorf("partitions: %d is not within 1 to %d", c.Partitions, delivery.MaxPartitions)
	}
	return errors.Join(unknown, misfit, c.checkURL())
}

func (c Config) checkURL() error {
	if many, err := redis.ParseClusterURL(c.URL); err == nil && len(many.Addrs) > 1 {
		_, err := c.TLS.secure(many.TLSConfig)
		return err
	}
	one, err := redis.ParseURL(c.URL)
	if err != nil {
		return fmt.Errorf("redis url: %w", withoutURL(err))
	}
	_, err = c.TLS.secure(one.TLSConfig)
	return err
}

// TLSFiles are PEM files for a rediss:// URL.
type TLSFiles struct {
	// CA holds the certificates, one or more, that may have signed the server's;
	// empty: those that the system trusts.
	CA string
	// Cert and Key are shown to a server that asks for a client's certificate. They
	// are read anew for every connection, so that files may be replaced while the
	// program runs. Both or none.
	Cert, Key string
}

// ErrTLS says that the server is there and is not trusted, or does not trust this
// program. Trying again does not help: somebody has to change a certificate or
// the settings.
var ErrTLS = errors.New("TLS with redis failed")

// secure completes what the URL's scheme has begun: base is nil without TLS. The
// server's certificate must have the name, or address, under which each server is
// reached; those of a cluster are told by its first one.
func (f TLSFiles) secure(base *tls.Config) (*tls.Config, error) {
	switch {
	case base == nil && f != (TLSFiles{}):
		return nil, errors.New("redis: certificates are configured, but the url does not begin with rediss://")
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("redis: a client's certificate and its key are needed together")
	case base == nil:
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("redis: the CA's certificate: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("redis: %s holds no certificate in PEM form", f.CA)
		}
	}
	if f.Cert != "" {
		if _, err := tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
			return nil, fmt.Errorf("redis: the client's certificate: %w", err)
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			return &own, err
		}
	}
	return config, nil
}

// distrust tells what no waiting mends from a server that is away: a certificate
// that does not hold, an alert about ours, or no TLS at all.
func distrust(err error) bool {
	var verification *tls.CertificateVerificationError
	var remote *net.OpError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &remote) && remote.Op == "remote error"
}
