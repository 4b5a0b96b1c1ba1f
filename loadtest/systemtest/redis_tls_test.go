package systemtest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
)

// certificates are a CA of its own for each call, with a certificate for names.
func certificates(t *testing.T, until time.Time, names ...string) *stack.RedisTLS {
	t.Helper()
	authority, err := stack.NewAuthority("test " + t.Name())
	must(t, err)
	files, err := authority.Issue(t.TempDir(), until, names...)
	must(t, err)

	return files
}

func encrypted(t *testing.T, files *stack.RedisTLS) *stack.Redis {
	return testserver.DedicatedRedis(t, stack.RedisOptions{Users: sandbox(), TLS: files})
}

// open returns what a program would say at its start: like them it tries again
// while Redis seems to be unavailable, as it does when a handshake takes too long.
func open(t *testing.T, url string, files ledger.TLSFiles) (err error) {
	t.Helper()
	await(t, "Redis answers", func() bool {
		var l *ledger.Ledger
		l, err = ledger.Open(t.Context(), ledger.Config{URL: url, Environment: "sandbox", TLS: files})
		if err == nil {
			err = errors.Join(l.Ping(t.Context()), l.Close())
		}
		return !errors.Is(err, delivery.ErrUnavailable)
	})

	return err
}

func TestTLS_SaysWhatIsWrongAtTheStart(t *testing.T) {
	t.Parallel()

	good := certificates(t, time.Time{}, "127.0.0.1", "localhost")
	other := certificates(t, time.Time{}, "127.0.0.1")
	strict := certificates(t, time.Time{}, "127.0.0.1")
	strict.AskClients = true
	server, strictServer := encrypted(t, good), encrypted(t, strict)
	url, strictURL := server.URLFor("gateway"), strictServer.URLFor("gateway")
	trust := ledger.TLSFiles{CA: good.CAFile}
	nothing := filepath.Join(t.TempDir(), "empty.pem")
	must(t, os.WriteFile(nothing, []byte("nothing\n"), 0o600))

	for name, c := range map[string]struct {
		url   string
		files ledger.TLSFiles
		want  string // "": it works
	}{
		"the CA that signed it":      {url, trust, ""},
		"by its other name":          {strings.Replace(url, "127.0.0.1", "localhost", 1), trust, ""},
		"another CA":                 {url, ledger.TLSFiles{CA: other.CAFile}, "unknown authority"},
		"the system's CAs":           {url, ledger.TLSFiles{}, "unknown authority"},
		"a name it does not have":    {strings.Replace(strictURL, "127.0.0.1", "localhost", 1), ledger.TLSFiles{CA: strict.CAFile}, "localhost"},
		"no client's certificate":    {strictURL, ledger.TLSFiles{CA: strict.CAFile}, "certificate required"},
		"an unknown certificate":     {strictURL, ledger.TLSFiles{CA: strict.CAFile, Cert: other.CertFile, Key: other.KeyFile}, "unknown certificate authority"},
		"a client's certificate":     {strictURL, ledger.TLSFiles{CA: strict.CAFile, Cert: strict.CertFile, Key: strict.KeyFile}, ""},
		"a certificate without key":  {url, ledger.TLSFiles{CA: good.CAFile, Cert: good.CertFile}, "needed together"},
		"a key of another":           {url, ledger.TLSFiles{CA: good.CAFile, Cert: good.CertFile, Key: other.KeyFile}, "does not match"},
		"a CA file that is missing":  {url, ledger.TLSFiles{CA: nothing + "x"}, "no such file"},
		"a CA file without any":      {url, ledger.TLSFiles{CA: nothing}, "holds no certificate"},
		"certificates but no rediss": {strings.Replace(url, "rediss:", "redis:", 1), trust, "rediss://"},
	} {
		err := open(t, c.url, c.files)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want it to say %q", name, err, c.want)
		}
	}
}

// A certificate that has run out, which the server itself does not notice, is
// refused; the next one is taken over while the server runs.
func TestTLS_ExpiredCertificateIsRefusedAndReplaced(t *testing.T) {
	t.Parallel()

	authority, err := stack.NewAuthority("test")
	must(t, err)
	dir := t.TempDir()
	files, err := authority.Issue(dir, time.Time{}, "127.0.0.1")
	must(t, err)
	r := encrypted(t, files)
	operator, err := r.Client() // keeps its connection, which was made with the first certificate
	must(t, err)
	defer operator.Close()
	must(t, operator.Ping(t.Context()).Err())
	replace := func(until time.Time) {
		t.Helper()
		_, err := authority.Issue(dir, until, "127.0.0.1")
		must(t, err)
		must(t, operator.Do(t.Context(), "CONFIG", "SET", "tls-cert-file", files.CertFile, "tls-key-file", files.KeyFile).Err())
	}

	trust := ledger.TLSFiles{CA: files.CAFile}
	replace(time.Now().Add(-time.Second))
	if err := open(t, r.URLFor("worker"), trust); !errors.Is(err, ledger.ErrTLS) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired certificate: %v", err)
	}

	replace(time.Time{})
	must(t, open(t, r.URLFor("worker"), trust))
}

// Neither side talks to the other in plain text.
func TestTLS_PlainTextIsRefused(t *testing.T) {
	t.Parallel()

	files := certificates(t, time.Time{}, "127.0.0.1")
	r, plain := encrypted(t, files), guarded(t)
	for name, c := range map[string]struct {
		url   string
		files ledger.TLSFiles
	}{
		"to a server that speaks TLS": {strings.Replace(r.URLFor("gateway"), "rediss:", "redis:", 1), ledger.TLSFiles{}},
		"to one that does not":        {strings.Replace(plain.URLFor("gateway"), "redis:", "rediss:", 1), ledger.TLSFiles{CA: files.CAFile}},
	} {
		l, err := ledger.Open(t.Context(), ledger.Config{URL: c.url, Environment: "sandbox", TLS: c.files})
		if err == nil {
			t.Errorf("%s: it was opened", name)
			must(t, l.Close())
		}
	}
}

// The certificate that Redis shows is seen at each connection, so that its end is known in time.
func TestTLS_TellsWhenTheCertificateEnds(t *testing.T) {
	t.Parallel()

	ends := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	files := certificates(t, ends, "127.0.0.1")
	server := encrypted(t, files)
	seen := make(chan time.Time, 100)
	l, err := ledger.Open(t.Context(), ledger.Config{
		URL: server.URLFor("gateway"), Environment: "sandbox", TLS: ledger.TLSFiles{CA: files.CAFile},
		SeenCertificate: func(ends time.Time) {
			select {
			case seen <- ends:
			default: // it must not block
			}
		},
	})

	must(t, err)
	defer l.Close()
	if got := <-seen; !got.Equal(ends) {
		t.Errorf("the certificate ends at %s, seen is %s", ends, got)
	}
}
