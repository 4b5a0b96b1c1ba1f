package deliver

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// folder is a place reached by SFTP.
type folder struct {
	client *sftp.Client
	root   string
}

func openFolder(s TargetSettings, at *url.URL) (func(context.Context) (place, error), error) {
	key, hosts, err := s.secrets("SSH_KEY", "KNOWN_HOSTS")
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey([]byte(key))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.variable("SSH_KEY"), err)
	}

	addr := net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "22"))
	config := &ssh.ClientConfig{User: at.User.Username(), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}}
	if err := trust(config, addr, hosts); err != nil {
		return nil, fmt.Errorf("%s: %w", s.variable("KNOWN_HOSTS"), err)
	}

	return func(ctx context.Context) (place, error) { return connect(ctx, addr, path.Clean("/"+at.Path), config) }, nil
}

// trust has config accept the server's keys that are listed, as OpenSSH lists them, and ask for
// one of their kinds: the server may have others.
func trust(config *ssh.ClientConfig, addr, hosts string) error {
	file, err := os.CreateTemp("", "known-hosts-")
	if err != nil {
		return err
	}

	_, err = file.WriteString(hosts)
	known, malformed := knownhosts.New(file.Name())
	if err := errors.Join(err, malformed, file.Close(), os.Remove(file.Name())); err != nil {
		return err
	}

	config.HostKeyCallback = func(host string, remote net.Addr, key ssh.PublicKey) error {
		if err := known(host, remote, key); err != nil {
			return fmt.Errorf("the host key of %s, %s %s, is not among the known ones: %w", host, key.Type(), ssh.FingerprintSHA256(key), err)
		}
		return nil
	}

	nobodys, err := ssh.NewPublicKey(ed25519.PublicKey(make([]byte, ed25519.PublicKeySize)))
	if err != nil {
		return err
	}

	listed, _ := errors.AsType[*knownhosts.KeyError](known(addr, &net.TCPAddr{}, nobodys))
	if listed == nil || len(listed.Want) == 0 {
		return fmt.Errorf("no key of %s is listed", addr)
	}

	for _, one := range listed.Want {
		kind := one.Key.Type()
		if kind == ssh.KeyAlgoRSA {
			config.HostKeyAlgorithms = append(config.HostKeyAlgorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
			continue
		}
		config.HostKeyAlgorithms = append(config.HostKeyAlgorithms, kind)
	}

	return nil
}

// connect returns a place that works until ctx ends.
func connect(ctx context.Context, addr, root string, config *ssh.ClientConfig) (*folder, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}

	context.AfterFunc(ctx, func() { connection.Close() })
	secured, channels, requests, err := ssh.NewClientConn(connection, addr, config)
	if err != nil {
		return nil, err
	}
	client, err := sftp.NewClient(ssh.NewClient(secured, channels, requests))
	if err != nil {
		return nil, fmt.Errorf("SFTP: %w", err)
	}

	return &folder{client, root}, nil
}

func (f *folder) read(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := f.client.Open(path.Join(f.root, name))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	return file, nil
}

func (f *folder) folders(context.Context) ([]string, error) {
	entries, err := f.client.ReadDir(f.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("list %s: %w", f.root, err)
	}

	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}

	return names, nil
}

// write writes under another name first. A hard link never replaces a file. Where there are
// none, the file is renamed, which OpenSSH refuses when the name is taken.
func (f *folder) write(_ context.Context, name string, content *upload) error {
	at := path.Join(f.root, name)
	if err := f.client.MkdirAll(path.Dir(at)); err != nil {
		return fmt.Errorf("make %s: %w", path.Dir(at), err)
	}

	part := at + partSuffix + rand.Text()
	file, err := f.client.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return fmt.Errorf("create %s: %w", part, err)
	}
	defer func() { _ = f.client.Remove(part) }()

	_, err = file.ReadFromWithConcurrency(content.reader(), concurrentWrites)
	if _, supported := f.client.HasExtension("fsync@openssh.com"); err == nil && supported {
		err = file.Sync()
	}

	err = cmp.Or(err, file.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", part, err)
	}

	for _, publish := range []func(from, to string) error{f.client.Link, f.client.Rename} {
		err = publish(part, at)
		if err == nil {
			f.tidy(at)
			return nil
		}
		if _, absent := f.client.Lstat(at); absent == nil {
			return fmt.Errorf("%w: %w", fs.ErrExist, err)
		}
	}

	return fmt.Errorf("rename %s: %w", part, err)
}

const (
	partSuffix       = ".part-"
	concurrentWrites = 16 // of 32 kB each
)

// tidy removes what interrupted calls have left of a file that is there. Another process may
// still write its own: then it, too, finds the file there.
func (f *folder) tidy(at string) {
	entries, _ := f.client.ReadDir(path.Dir(at)) // what cannot be removed is in nobody's way
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), path.Base(at)+partSuffix) {
			_ = f.client.Remove(path.Join(path.Dir(at), e.Name()))
		}
	}
}
