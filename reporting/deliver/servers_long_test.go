//go:build long

package deliver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
)

func init() {
	servers["versitygw"] = func(t *testing.T) *server { s, _ := versitygw(t); return s }
	servers["sshd"] = func(t *testing.T) *server { s, _ := sshd(t, ""); return s }
	servers["sshd without hard links"] = func(t *testing.T) *server { s, _ := sshd(t, "-P hardlink"); return s }
}

// processes are those of the servers.
var processes = map[string]func(*testing.T) (*server, *process){
	"S3": versitygw, "S3 in parts": versitygwInParts, "SFTP": func(t *testing.T) (*server, *process) { return sshd(t, "") },
}

// process is a server that can be killed and started again.
type process struct {
	addr, path string
	args       []string
	cmd        *exec.Cmd
}

// start returns when the server listens.
func (p *process) start(t *testing.T) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	out, err := os.Create(log)
	must(t, err)
	defer out.Close()
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	must(t, p.cmd.Start())
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.addr); err == nil {
			c.Close()
			return
		}
		if time.Since(began) > time.Minute {
			said, _ := os.ReadFile(log)
			t.Fatalf("%s does not listen: %s", p.path, said)
		}
	}
}

// kill ends the server and what it has started for connections.
func (p *process) kill() {
	for _, pid := range append(below(p.cmd.Process.Pid), p.cmd.Process.Pid) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	p.cmd.Wait()
}

// below are the processes that one has started, and those that they have.
func below(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(field)
			pids = append(pids, append(below(child), child)...)
		}
	}
	return pids
}

// versitygw checks signatures and digests.
func versitygw(t *testing.T) (*server, *process) {
	const pkg, version = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
	cache, err := os.UserCacheDir()
	must(t, err)
	dir := filepath.Join(cache, "vendorapi", path.Base(pkg)+"-"+version)
	installing.Lock()
	defer installing.Unlock()
	if _, err := os.Stat(filepath.Join(dir, path.Base(pkg))); err != nil {
		install := exec.Command("go", "install", pkg+"@"+version)
		install.Dir, install.Env = t.TempDir(), append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}

	files := t.TempDir()
	must(t, os.Mkdir(filepath.Join(files, "books"), 0o700))
	p := &process{addr: stack.FreeAddr(), path: filepath.Join(dir, path.Base(pkg))}
	p.args = []string{"--access", "me", "--secret", "geheim-geheim", "--port", p.addr, "posix", files}
	p.start(t)
	t.Cleanup(func() { p.kill() })
	s := &server{front: newFront(t, p.addr), url: "s3://books/closed?endpoint=http://%s", secrets: map[string]string{"KEY_ID": "me", "SECRET": "geheim-geheim"}}

	return onFolder(t, s, filepath.Join(files, "books", "closed")), p
}

// versitygwInParts gets files above 5 MiB, S3's smallest part, in parts.
func versitygwInParts(t *testing.T) (*server, *process) {
	s, p := versitygw(t)
	s.partSize = 5 << 20
	return s, p
}

var installing sync.Mutex

// sshd is OpenSSH's, as the user who runs the test; options are those of its SFTP server.
func sshd(t *testing.T, options string) (*server, *process) {
	dir := t.TempDir()
	host, hostPEM := newKey(t)
	mine, private := newKey(t)
	write := func(name, content string) string {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		return filepath.Join(dir, name)
	}

	me, err := user.Current()
	must(t, err)
	if me.Uid == "0" { // its package makes it at the start of the system
		must(t, os.MkdirAll("/run/sshd", 0o755))
	}

	p := &process{addr: stack.FreeAddr(), path: "/usr/sbin/sshd"}
	other := write("rsa", "")
	must(t, os.Remove(other))
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", other).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	config := write("config", strings.Join([]string{
		"ListenAddress " + p.addr, "HostKey " + other, "HostKey " + write("host", hostPEM+"\n"), "AuthorizedKeysFile " + write("authorized", string(ssh.MarshalAuthorizedKey(mine.PublicKey()))),
		"StrictModes no", "PidFile none", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "Subsystem sftp internal-sftp " + options, "",
	}, "\n"))

	p.args = []string{"-D", "-e", "-f", config}
	p.start(t)
	t.Cleanup(func() { p.kill() })
	books := filepath.Join(dir, "books")
	must(t, os.Mkdir(books, 0o700))
	s := &server{front: newFront(t, p.addr), url: "sftp://" + me.Username + "@%s" + books}
	s.secrets = map[string]string{"SSH_KEY": private, "KNOWN_HOSTS": knownhosts.Line([]string{s.addr}, host.PublicKey())}

	return onFolder(t, s, books), p
}

func TestDeliver_GoesOnAfterTheServersDeath(t *testing.T) {
	t.Parallel()

	for name, start := range processes {
		s, p := start(t)
		target, files := s.open(t), theSet()
		var once sync.Once
		s.after(1<<20, func(_, _ net.Conn) { once.Do(p.kill) })
		said, err := deliverTo(t.Context(), target, files)
		if !errors.Is(err, delivery.ErrUnavailable) || !slices.Equal(said, []string{"orders.csv sent"}) {
			t.Errorf("%s killed: said %q and %v", name, said, err)
		}
		if _, finished := s.files()[path.Join(month, "payments.csv")]; finished {
			t.Errorf("%s killed: half a file is there", name)
		}
		if _, err := deliverTo(t.Context(), target, files); !errors.Is(err, delivery.ErrUnavailable) {
			t.Errorf("%s is gone: %v", name, err)
		}

		p.start(t)
		s.repair()
		said, err = deliverTo(t.Context(), target, files)
		if want := []string{"orders.csv there", "payments.csv sent", "empty.csv sent", "manifest.json sent"}; err != nil || !slices.Equal(said, want) {
			t.Errorf("%s: said %q and %v", name, said, err)
		}
		if !maps.Equal(s.files(), whole(t, files)) {
			t.Errorf("%s: there are %v", name, slices.Sorted(maps.Keys(s.files())))
		}
	}
}

func TestDeliver_SaysWhatServersRefuse(t *testing.T) {
	t.Parallel()

	gateway, _ := versitygw(t)
	shell, _ := sshd(t, "")
	readOnly, _ := sshd(t, "-R")
	other, stranger := newKey(t)
	testFailures(t, map[string]failure{
		"wrong secret":   {gateway.with(t, "SECRET", "geheim", "", ""), "The request signature we calculated does not match", false},
		"wrong key":      {gateway.with(t, "KEY_ID", "nobody", "", ""), "access key", false},
		"missing bucket": {gateway.with(t, "", "", "books", "nobodys-books"), "bucket does not exist", false},
		"refused key":    {shell.with(t, "SSH_KEY", stranger, "", ""), "unable to authenticate", false},
		"other host key": {shell.with(t, "KNOWN_HOSTS", knownhosts.Line([]string{shell.addr}, other.PublicKey()), "", ""), "is not among the known ones: knownhosts: key mismatch", false},
		"read-only":      {readOnly.settings(t), "permission denied", false},
		"no such user":   {shell.with(t, "", "", "sftp://", "sftp://nobody-of-"), "unable to authenticate", false},
	})
}

// A server that checks signatures and digests puts the parts together, and keeps what is there.
func TestBucket_PartsArriveAtAServerThatChecksThem(t *testing.T) {
	t.Parallel()

	s, _ := versitygwInParts(t)
	content := strings.Repeat("0123456789abcde\n", 13<<16)
	files := []File{file("large.csv", content), file("manifest.json", manifest)}
	target := s.open(t)
	for _, want := range [][]string{{"large.csv sent", "manifest.json sent"}, {"large.csv there", "manifest.json there"}} {
		if said, err := deliverTo(t.Context(), target, files); err != nil || !slices.Equal(said, want) {
			t.Errorf("said %q and %v", said, err)
		}
	}

	if got := s.files()[path.Join(month, "large.csv")]; got != content {
		t.Errorf("%d bytes are there", len(got))
	}

	opened, err := target.open(t.Context())
	must(t, err)
	b := opened.(*bucket)
	key := b.prefix + path.Join(month, "large.csv")
	sum := sha256.Sum256([]byte(content))
	err = b.write(t.Context(), path.Join(month, "large.csv"), &upload{file: strings.NewReader(content), size: int64(len(content)), sum: sum[:], progress: io.Discard})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that is there: %v", err)
	}
	left, err := b.client.ListMultipartUploads(t.Context(), b.name, key, "", "", "", 10)
	if err != nil || len(left.Uploads) > 0 {
		t.Errorf("unfinished: %+v, %v", left.Uploads, err)
	}

	// The condition alone, without the last look.
	id, err := b.client.NewMultipartUpload(t.Context(), b.name, key, minio.PutObjectOptions{})
	must(t, err)
	part, err := b.putPart(t.Context(), key, id, 1, &upload{file: strings.NewReader("x"), size: 1, progress: io.Discard}, 0)
	must(t, err)
	var options minio.PutObjectOptions
	options.SetMatchETagExcept("*")
	_, err = b.client.CompleteMultipartUpload(t.Context(), b.name, key, id, []minio.CompletePart{part}, options)
	if answer := minio.ToErrorResponse(err); answer.StatusCode != http.StatusPreconditionFailed {
		t.Errorf("put together over a file that is there: %v", err)
	}
}

// What passes meanwhile does not stay in memory: neither server is in this process.
func TestDeliver_NeedsLittleMemory(t *testing.T) {
	for name, start := range processes {
		s, _ := start(t)
		rows := []byte(strings.Repeat("0123456789abcde\n", 4096))
		f := File{Name: "large.csv", Write: func(_ context.Context, w io.Writer) error {
			for range 800 {
				if _, err := w.Write(rows); err != nil {
					return err
				}
			}
			return nil
		}}

		hash := sha256.New()
		must(t, f.Write(t.Context(), hash))
		f.SHA256 = hex.EncodeToString(hash.Sum(nil))
		runtime.GC()
		var before, peak, now runtime.MemStats
		runtime.ReadMemStats(&before)
		var one sync.Mutex
		sample := func() {
			one.Lock()
			defer one.Unlock()
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > peak.HeapAlloc {
				peak = now
			}
		}

		s.passes.Store(&sample)
		said, err := deliverTo(t.Context(), s.open(t), []File{f})
		s.passes.Store(nil)
		if err != nil || !slices.Equal(said, []string{"large.csv sent"}) {
			t.Errorf("%s: said %q and %v", name, said, err)
		}

		grown := int64(peak.HeapAlloc) - int64(before.HeapAlloc)
		t.Logf("%s: %d kB more at most", name, grown>>10)
		if grown > 20<<20 {
			t.Errorf("%s: %d bytes of memory for a file of %d", name, grown, 800*len(rows))
		}
	}
}

// A server that takes no more loses its connection after a minute.
func TestDeliver_EndsWithoutProgress(t *testing.T) {
	t.Parallel()

	for name, start := range servers {
		if name == "versitygw" || strings.HasPrefix(name, "sshd") {
			continue
		}

		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s, done := start(t), make(chan struct{})
			t.Cleanup(func() { close(done) })
			s.after(1<<20, func(_, _ net.Conn) { <-done })
			said, err := deliverTo(t.Context(), s.open(t), theSet())
			if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "payments.csv: no progress for 1m0s") || len(said) != 1 {
				t.Errorf("said %q and %v", said, err)
			}
		})
	}
}
