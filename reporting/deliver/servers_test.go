package deliver

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// server is a real one, behind a front.
type server struct {
	*front
	url     string            // of a target, with %s for the address
	secrets map[string]string // of a target, such as KEY_ID
	files   func() map[string]string
	put     func(name, content string)

	partSize int64 // in which files are sent to S3; 0: in one request
}

// servers are those that need nothing installed; tests with the tag long add others.
var servers = map[string]func(*testing.T) *server{
	"S3":          func(t *testing.T) *server { return fakeS3(t).server },
	"S3 in parts": func(t *testing.T) *server { return fakeS3InParts(t).server },
	"SFTP":        goSFTP,
}

// onEach runs a test against each kind of server.
func onEach(t *testing.T, test func(*testing.T, *server)) {
	t.Parallel()
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

var targets atomic.Int64

// settings are those of a new target, with its secrets in the environment.
func (s *server) settings(t *testing.T) TargetSettings {
	t.Helper()
	settings := TargetSettings{Name: fmt.Sprint("t-", targets.Add(1)), URL: fmt.Sprintf(s.url, s.addr)}
	for of, secret := range s.secrets {
		must(t, os.Setenv(settings.variable(of), secret))
	}
	return settings
}

func (s *server) open(t *testing.T) *Target {
	t.Helper()
	target, err := Open(s.settings(t))
	must(t, err)
	if s.partSize > 0 {
		opened, err := target.open(t.Context())
		must(t, err)
		bucket := opened.(*bucket)
		bucket.largestPut, bucket.partSize = s.partSize, s.partSize
	}

	return target
}

// front passes connections on to a server.
type front struct {
	addr, to string
	left     atomic.Int64 // bytes for the server until do is called
	do       atomic.Pointer[func(down, up net.Conn)]
	passes   atomic.Pointer[func()]
}

func newFront(t *testing.T, to string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &front{addr: l.Addr().String(), to: to}
	f.repair()
	var open sync.WaitGroup
	t.Cleanup(func() { l.Close(); open.Wait() })
	open.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			go f.pass(down)
		}
	})

	return f
}

func (f *front) repair() { f.left.Store(math.MaxInt64) }

// after has something done when n bytes have passed to the server.
func (f *front) after(n int64, do func(down, up net.Conn)) {
	f.do.Store(&do)
	f.left.Store(n)
}

func cut(down, up net.Conn) { down.Close(); up.Close() }

func (f *front) pass(down net.Conn) {
	defer down.Close()
	up, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer up.Close()

	go func() { io.Copy(down, up); down.Close() }()
	for b := make([]byte, 16<<10); ; {
		n, err := down.Read(b)
		if err != nil {
			return
		}

		if f.left.Add(-int64(n)) < 0 {
			(*f.do.Load())(down, up)
		}

		if passes := f.passes.Load(); passes != nil {
			(*passes)()
		}

		if _, err := up.Write(b[:n]); err != nil {
			return
		}
	}
}

// folderFiles are the files below a folder with their content.
func folderFiles(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(content)
		return err
	}))

	return files
}

// onFolder is a server of the files below dir.
func onFolder(t *testing.T, s *server, dir string) *server {
	s.files = func() map[string]string { return folderFiles(t, dir) }
	s.put = func(name, content string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return s
}

// s3Server is an S3 server in this process. It takes every key for good, and compares MD5s.
type s3Server struct {
	*server
	client *minio.Core // past the front

	mu       sync.Mutex
	requests []string // such as "PUT partNumber"

	// before is called with each request before it is served; nil: nothing is.
	before atomic.Pointer[func(*http.Request)]

	// ignoresConditions: a file in parts replaces one that is there.
	ignoresConditions bool
}

func fakeS3(t *testing.T) *s3Server {
	backend := s3mem.New()
	must(t, backend.CreateBucket("books"))
	s := &s3Server{}
	store := gofakes3.New(backend).Server()
	var completing sync.Mutex
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.note(r)
		if before := s.before.Load(); before != nil {
			(*before)(r)
		}

		// As Amazon's; this server does not know it.
		isCompletion := r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
		if isCompletion {
			completing.Lock()
			defer completing.Unlock()
			_, err := backend.HeadObject("books", strings.TrimPrefix(r.URL.Path, "/books/"))
			if err == nil && r.Header.Get("If-None-Match") == "*" && !s.ignoresConditions {
				w.WriteHeader(http.StatusPreconditionFailed)
				return
			}
		}

		store.ServeHTTP(w, r)
	}))

	t.Cleanup(listener.Close)
	addr := listener.Listener.Addr().String()
	var err error
	s.client, err = minio.NewCore(addr, &minio.Options{Creds: credentials.NewStaticV4("me", "geheim-geheim", "")})
	must(t, err)

	s.server = &server{
		front: newFront(t, addr), url: "s3://books/closed?endpoint=http://%s",
		secrets: map[string]string{"KEY_ID": "me", "SECRET": "geheim-geheim"},
		files: func() map[string]string {
			files := map[string]string{}
			all, err := backend.ListBucket("books", nil, gofakes3.ListBucketPage{})
			must(t, err)
			for _, one := range all.Contents {
				object, err := backend.GetObject("books", one.Key, nil)
				must(t, err)
				content, err := io.ReadAll(object.Contents)
				must(t, err)
				files[strings.TrimPrefix(one.Key, "closed/")] = string(content)
			}

			return files
		},
		put: func(name, content string) {
			_, err := backend.PutObject("books", "closed/"+name, map[string]string{"Last-Modified": "Mon, 02 Nov 2026 00:00:00 GMT"}, strings.NewReader(content), int64(len(content)), nil)
			must(t, err)
		},
	}

	return s
}

// fakeS3InParts gets the larger file of theSet in four parts and a rest.
func fakeS3InParts(t *testing.T) *s3Server {
	s := fakeS3(t)
	s.partSize = 1 << 20
	return s
}

func (s *s3Server) note(r *http.Request) {
	query := ""
	for _, name := range []string{"uploads", "partNumber", "uploadId"} {
		if r.URL.Query().Has(name) {
			query = " " + name
			break
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+query)
}

// count is how many requests of a kind there were.
func (s *s3Server) count(request string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.requests {
		if one == request {
			n++
		}
	}
	return n
}

// onRequest has something done before the nth request of a kind is served.
func (s *s3Server) onRequest(request string, nth int, do func(*http.Request)) {
	before := func(r *http.Request) {
		method, query, _ := strings.Cut(request, " ")
		if r.Method == method && r.URL.Query().Has(query) && s.count(request) == nth {
			do(r)
		}
	}
	s.before.Store(&before)
}

// unfinished are the files of which there are unfinished uploads.
func (s *s3Server) unfinished(t *testing.T) (keys []string) {
	t.Helper()
	found, err := s.client.ListMultipartUploads(t.Context(), "books", "", "", "", "", 100)
	if hasCode(err, minio.NoSuchUpload) { // there never were any
		return nil
	}

	must(t, err)
	for _, upload := range found.Uploads {
		keys = append(keys, upload.Key)
	}

	return keys
}

// newKey returns a key for servers and clients, and the private one in PEM, as a secret of a file is read.
func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)

	return signer, strings.TrimSpace(string(pem.EncodeToMemory(block)))
}

// goSFTP is pkg/sftp's server. Its rename replaces files, as that of some others does.
func goSFTP(t *testing.T) *server {
	return sftpBehind(t, func(channel ssh.Channel) io.ReadWriteCloser { return channel })
}

// sftpBehind is goSFTP, whose requests and answers pass through what serve returns.
func sftpBehind(t *testing.T, serve func(ssh.Channel) io.ReadWriteCloser) *server {
	host, _ := newKey(t)
	mine, private := newKey(t)
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !bytes.Equal(key.Marshal(), mine.PublicKey().Marshal()) {
			return nil, fs.ErrPermission
		}
		return nil, nil
	}}

	config.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			connection, err := l.Accept()
			if err != nil {
				return
			}
			go serveSFTP(connection, config, serve)
		}
	}()

	dir := t.TempDir()
	s := &server{front: newFront(t, l.Addr().String()), url: "sftp://me@%s" + dir + "/closed/months"}
	s.secrets = map[string]string{"SSH_KEY": private, "KNOWN_HOSTS": knownhosts.Line([]string{s.addr}, host.PublicKey())}

	return onFolder(t, s, filepath.Join(dir, "closed", "months"))
}

func serveSFTP(connection net.Conn, config *ssh.ServerConfig, serve func(ssh.Channel) io.ReadWriteCloser) {
	defer connection.Close()
	_, channels, requests, err := ssh.NewServerConn(connection, config)
	if err != nil {
		return
	}

	go ssh.DiscardRequests(requests)
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}

		go func() {
			for r := range requests {
				r.Reply(r.Type == "subsystem", nil)
			}
		}()

		go func() {
			defer channel.Close()
			if s, err := sftp.NewServer(serve(channel)); err == nil {
				s.Serve()
			}
		}()
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
