package deliver

import (
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"math/big"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"vendorapi/internal/delivery"
)

const month = "2026-10-closing-000007"

func file(name, content string) File {
	return File{name, fmt.Sprintf("%x", sha256.Sum256([]byte(content))), func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	}}
}

const manifest = `{"whole": true}`

// theSet is larger in its second file, 4 MiB and a line, than what a connection buffers.
func theSet() []File {
	return []File{file("orders.csv", "id;sum\n1;2\n"), file("payments.csv", strings.Repeat("0123456789abcde\n", 1<<18+1)), file("empty.csv", ""), file("manifest.json", manifest)}
}

// whole is what is there when the set is.
func whole(t *testing.T, files []File) map[string]string {
	t.Helper()
	there := map[string]string{}
	for _, f := range files {
		var b strings.Builder
		must(t, f.Write(t.Context(), &b))
		there[path.Join(month, f.Name)] = b.String()
	}
	return there
}

// deliverTo returns what was said to be there, such as "orders.csv sent".
func deliverTo(ctx context.Context, target *Target, files []File) (said []string, err error) {
	err = target.Deliver(ctx, month, files, func(f File, sent bool) {
		outcome := " there"
		if sent {
			outcome = " sent"
		}
		said = append(said, f.Name+outcome)
	})
	return said, err
}

func TestDeliver_PutsASetThereOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		target, files := s.open(t), theSet()
		said, err := deliverTo(t.Context(), target, files)
		if want := []string{"orders.csv sent", "payments.csv sent", "empty.csv sent", "manifest.json sent"}; err != nil || !slices.Equal(said, want) {
			t.Errorf("said %q and %v", said, err)
		}

		want := whole(t, files)
		if !maps.Equal(s.files(), want) {
			t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
		}
		if wrong, err := target.Check(t.Context(), month, files); err != nil || wrong != nil {
			t.Errorf("check: %q, %v", wrong, err)
		}

		for i := range files {
			files[i].Write = func(context.Context, io.Writer) error { return errors.New("written again") }
		}

		said, err = deliverTo(t.Context(), target, files)
		if want := []string{"orders.csv there", "payments.csv there", "empty.csv there", "manifest.json there"}; err != nil || !slices.Equal(said, want) {
			t.Errorf("again: said %q and %v", said, err)
		}
		if !maps.Equal(s.files(), want) {
			t.Errorf("again: there are %v", slices.Sorted(maps.Keys(s.files())))
		}
	})
}

// Whoever compares what was delivered finds folders of which nothing is recorded.
func TestTarget_ListsFoldersAndReadsFiles(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		target := s.open(t)
		names, err := target.Folders(t.Context())
		if err != nil || len(names) > 0 {
			t.Fatalf("before anything was delivered: %q, %v", names, err)
		}

		_, err = deliverTo(t.Context(), target, theSet())
		must(t, err)
		s.put("2025-10-closing-000002/manifest.json", "another one")
		s.put("notes.txt", "a file is no folder")

		names, err = target.Folders(t.Context())
		must(t, err)
		slices.Sort(names)
		want := []string{"2025-10-closing-000002", month}
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("the folders are %q, want %q", names, want)
		}

		for _, c := range []struct {
			name    string
			maxSize int64
			want    string
		}{
			{"manifest.json", 1000, manifest},
			{"manifest.json", 3, manifest[:3]},
			{"missing.json", 1000, ""},
		} {
			content, err := target.Read(t.Context(), month, c.name, c.maxSize)
			must(t, err)
			if string(content) != c.want {
				t.Errorf("%s has %q, want %q", c.name, content, c.want)
			}
		}
	})
}

func TestDeliver_GoesOnWhereItWasCutOff(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		target, files := s.open(t), theSet()
		s.after(1<<20, cut)
		said, err := deliverTo(t.Context(), target, files)
		if !errors.Is(err, delivery.ErrUnavailable) || !slices.Equal(said, []string{"orders.csv sent"}) {
			t.Errorf("cut off: said %q and %v", said, err)
		}
		if text := fmt.Sprint(err); !strings.Contains(text, target.Name+": "+month+"/payments.csv: ") {
			t.Errorf("the error names neither target nor file: %s", text)
		}

		for name := range s.files() {
			if base := path.Base(name); base != "orders.csv" && !strings.HasPrefix(base, "payments.csv.part-") {
				t.Errorf("cut off, and %s is there", name)
			}
		}

		s.repair()
		said, err = deliverTo(t.Context(), target, files)
		if want := []string{"orders.csv there", "payments.csv sent", "empty.csv sent", "manifest.json sent"}; err != nil || !slices.Equal(said, want) {
			t.Errorf("said %q and %v", said, err)
		}
		if !maps.Equal(s.files(), whole(t, files)) {
			t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
		}
	})
}

func TestDeliver_KeepsAFileOfOtherContent(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		target, files := s.open(t), theSet()
		changed := path.Join(month, "empty.csv")
		s.put(changed, "changed")
		if _, err := deliverTo(t.Context(), target, files); !errors.Is(err, ErrDiffers) || errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), changed) {
			t.Errorf("%v", err)
		}

		there := s.files()
		if _, finished := there[path.Join(month, "manifest.json")]; finished || there[changed] != "changed" {
			t.Errorf("manifest: %t, the file: %q", finished, there[changed])
		}

		wrong, err := target.Check(t.Context(), month, files)
		if err != nil || len(wrong) != 2 || !strings.Contains(wrong[0], changed+" at "+target.Name+" is not what was") || !strings.Contains(wrong[1], "manifest.json is missing") {
			t.Errorf("check: %q, %v", wrong, err)
		}
	})
}

// Both have seen that a file is missing before one of them sends it.
func TestDeliver_TwoAtOnceMakeOneSet(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		meet := make(chan struct{})
		files := theSet()
		want := whole(t, files)
		for i, f := range files {
			files[i].Write = func(ctx context.Context, w io.Writer) error {
				select {
				case meet <- struct{}{}:
				case <-meet:
				}
				return f.Write(ctx, w)
			}
		}

		var said [2][]string
		var both sync.WaitGroup
		for i := range said {
			target := s.open(t)
			both.Go(func() {
				var err error
				said[i], err = deliverTo(t.Context(), target, files)
				if err != nil {
					t.Errorf("%v", err)
					go func() { // the other must not wait
						for range meet {
						}
					}()
				}
			})
		}

		both.Wait()
		sent := 0
		for _, line := range slices.Concat(said[:]...) {
			if strings.HasSuffix(line, " sent") {
				sent++
			}
		}

		if sent != len(files) || !maps.Equal(s.files(), want) {
			t.Errorf("%d were sent: %q; there are %v", sent, said, slices.Sorted(maps.Keys(s.files())))
		}
	})
}

// fickle is a place that has a file, and has none when somebody looks.
type fickle struct{ place }

func (fickle) write(context.Context, string, *upload) error { return fs.ErrExist }

func (fickle) read(context.Context, string) (io.ReadCloser, error) { return nil, fs.ErrNotExist }

func TestDeliver_AFileThatIsGoneAgainIsTriedAgain(t *testing.T) {
	s := session{place: fickle{}, folder: "2026-11", pause: time.NewTimer(time.Hour), longestPause: time.Hour}

	sent, err := s.send(t.Context(), theSet()[0])

	if sent || !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("sent %v, %v", sent, err)
	}
}

func TestDeliver_SendsNoManifestAfterAFailure(t *testing.T) {
	onEach(t, func(t *testing.T, s *server) {
		target, failure := s.open(t), errors.New("no such report")
		ctx, cancel := context.WithCancel(t.Context())
		for name, c := range map[string]struct {
			write func(context.Context, io.Writer) error
			ctx   context.Context
			want  string
		}{
			"other content": {file("", "not the same").Write, t.Context(), "payments.csv: what would be delivered is not what was sealed"},
			"no content":    {func(context.Context, io.Writer) error { return failure }, t.Context(), "payments.csv: no such report"},
			"its end":       {func(context.Context, io.Writer) error { cancel(); return nil }, ctx, "payments.csv: context canceled"},
		} {
			files := theSet()
			files[1].Write = c.write
			_, err := deliverTo(c.ctx, target, files)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, delivery.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			if there := slices.Collect(maps.Keys(s.files())); !slices.Equal(there, []string{path.Join(month, "orders.csv")}) {
				t.Errorf("%s: there are %v", name, there)
			}
		}
	})
}

func TestDeliver_RefusesNamesThatLeadElsewhere(t *testing.T) {
	t.Parallel()

	target := &Target{Name: "erp", LongestPause: longestPause, open: func(context.Context) (place, error) { return nil, errors.New("connected") }}
	for _, name := range []string{"", ".", "..", "../a", "a/b", `a\b`, "a\x00", ".a", "a b", "ä", strings.Repeat("a", 201)} {
		for _, err := range []error{
			target.Deliver(t.Context(), month, []File{file(name, "")}, nil), target.Deliver(t.Context(), name, nil, nil),
		} {
			if err == nil || !strings.Contains(err.Error(), "want a name of") {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
}

// failure is what an operator reads, and whether it may pass by itself.
type failure struct {
	settings TargetSettings
	want     string
	passes   bool
}

func testFailures(t *testing.T, failures map[string]failure) {
	for name, c := range failures {
		target, err := Open(c.settings)
		if err == nil {
			_, err = deliverTo(t.Context(), target, theSet())
		}

		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "deliver to "+c.settings.Name+": ") || errors.Is(err, delivery.ErrUnavailable) != c.passes {
			t.Errorf("%s: %v", name, err)
		}

		if strings.Contains(fmt.Sprint(err), "geheim") || strings.Contains(fmt.Sprint(err), "PRIVATE") {
			t.Errorf("%s: a secret is shown: %v", name, err)
		}
	}
}

// with is a target whose secret or address is another one.
func (s *server) with(t *testing.T, of, secret, old, replacement string) TargetSettings {
	settings := s.settings(t)
	if of != "" {
		must(t, os.Setenv(settings.variable(of), secret))
	}
	settings.URL = strings.Replace(settings.URL, old, replacement, 1)
	return settings
}

func TestDeliver_SaysWhatIsWrongWithS3(t *testing.T) {
	t.Parallel()

	s := fakeS3(t)
	stranger := httptest.NewUnstartedServer(nil)
	stranger.Config.ErrorLog = log.New(io.Discard, "", 0)
	stranger.StartTLS()
	t.Cleanup(stranger.Close)
	testFailures(t, map[string]failure{
		"no secret":      {s.with(t, "SECRET", "", "", ""), "set DELIVER_T_", false},
		"missing bucket": {s.with(t, "", "", "books", "nobodys-books"), "bucket does not exist", false},
		"nobody there":   {s.with(t, "", "", s.addr, "127.0.0.1:1"), "connection refused", true},
		"certificate":    {s.with(t, "", "", "http://"+s.addr, stranger.URL), "certificate signed by unknown authority", false},
		"no TLS":         {s.with(t, "", "", "http:", "https:"), "server gave HTTP response to HTTPS client", true},
	})
}

func TestDeliver_SaysWhatIsWrongWithSFTP(t *testing.T) {
	t.Parallel()

	s := goSFTP(t)
	other, stranger := newKey(t)
	blocked := t.TempDir()
	must(t, os.WriteFile(path.Join(blocked, month), nil, 0o600))
	testFailures(t, map[string]failure{
		"no key":             {s.with(t, "SSH_KEY", "", "", ""), "set DELIVER_T_", false},
		"no PEM":             {s.with(t, "SSH_KEY", "geheim", "", ""), "SSH_KEY: ssh: no key found", false},
		"refused key":        {s.with(t, "SSH_KEY", stranger, "", ""), "unable to authenticate", false},
		"unlisted host":      {s.with(t, "KNOWN_HOSTS", knownhosts.Line([]string{"other"}, other.PublicKey()), "", ""), "no key of " + s.addr + " is listed", false},
		"other host key":     {s.with(t, "KNOWN_HOSTS", knownhosts.Line([]string{s.addr}, other.PublicKey()), "", ""), "is not among the known ones: knownhosts: key mismatch", false},
		"no known hosts":     {s.with(t, "KNOWN_HOSTS", "what is this", "", ""), "KNOWN_HOSTS: knownhosts: ", false},
		"a file in its way":  {s.with(t, "", "", s.url[len("sftp://me@%s"):], blocked), "not a directory", false},
		"no folder possible": {s.with(t, "", "", s.url[len("sftp://me@%s"):], "/proc/books"), "make /proc/books", false},
	})

	s.after(0, cut)
	testFailures(t, map[string]failure{"cut off": {s.settings(t), "ssh: handshake failed: ", true}})
}

// A server signs with an RSA key by SHA-2; the key's own name stands for SHA-1, which none offers any more.
func TestTrust_AsksForRSAWithSHA2(t *testing.T) {
	t.Parallel()

	key, err := ssh.NewPublicKey(&rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 2047, 1), E: 65_537})
	must(t, err)
	var config ssh.ClientConfig

	must(t, trust(&config, "host:22", knownhosts.Line([]string{"host:22"}, key)))

	if want := []string{"rsa-sha2-512", "rsa-sha2-256"}; !slices.Equal(config.HostKeyAlgorithms, want) {
		t.Errorf("asks for %q, want %q", config.HostKeyAlgorithms, want)
	}
}

func TestValidate_NamesTheFirstWrongKey(t *testing.T) {
	t.Parallel()

	for url, fine := range map[string]bool{
		"s3://books": true, "s3://books/": true, "s3://books/a/b/": true, "s3://books/a?endpoint=https://host:9000&region=eu-1": true, "s3://books?endpoint=http://[::1]:1/": true,
		"sftp://me@host": true, "sftp://me@host:2222/a/b": true, "sftp://me@[::1]:22/a": true,
		"": false, "books": false, "/books": false, "https://books": false, "s3://": false, "s3:///a": false, "s3://books/../a": false, "s3://books/a//b": false,
		"s3://me@books": false, "s3://books:1": false, "s3://books?key=geheim": false, "s3://books?endpoint=host:9000": false, "s3://books?endpoint=https://me:geheim@host": false, "s3://books?endpoint=https://host/a": false, "s3://books#a": false,
		"sftp://host/a": false, "sftp://me:geheim@host/a": false, "sftp://me@host/a/..": false, "sftp://me@host/a?b=c": false, "sftp://me:ge heim@host": false, "sftp://me@host:geheim": false,
	} {
		s := Settings{Targets: []TargetSettings{{"erp", url}}}
		err := s.Validate()
		if (err == nil) != fine || err != nil && (!strings.HasPrefix(err.Error(), "deliver.targets[0].url: want ") || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%q: %v", url, err)
		}
	}

	for want, names := range map[string][]string{"": {"erp", "erp-2"}, "deliver.targets[1].name: erp is there twice": {"erp", "erp"}, "deliver.targets[0].name: want ": {"Erp"}, "deliver.targets[1].name: want ": {"erp", ""}} {
		var s Settings
		for _, name := range names {
			s.Targets = append(s.Targets, TargetSettings{name, "s3://books"})
		}
		if err := s.Validate(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// What a server answers is quoted, but not without end, and decides all the same whether it may pass.
func TestFault_CutsWhatTheServerSays(t *testing.T) {
	t.Parallel()

	foreign := strings.Repeat("x\xff\x00\r\n", 12_000)
	for _, c := range []struct {
		status int
		code   string
		passes bool
	}{
		{500, foreign, true},
		{503, foreign, true},
		{408, foreign, true},
		{409, foreign, true},
		{429, foreign, true},
		{400, foreign, false},
		{403, foreign, false},
		{404, foreign, false},
		{412, foreign, false},
		{400, "RequestTimeout", true},
		{400, "InternalError", true},
		{400, "ServiceUnavailable", true},
		{400, "SlowDown", true},
		{400, "BadDigest", true},
		{400, "XAmzContentSHA256Mismatch", true},
		{400, "AccessDenied", false},
	} {
		cause := minio.ErrorResponse{StatusCode: c.status, Code: c.code, Message: foreign}

		got := fault(t.Context(), cause)

		n := len(got.Error())
		if n > 1000 || strings.ContainsAny(got.Error(), "\r\n\x00") {
			t.Errorf("%d: %d bytes: %q", c.status, n, got)
		}
		if errors.Is(got, delivery.ErrUnavailable) != c.passes {
			t.Errorf("%d %.20q may pass: %t, want %t", c.status, c.code, !c.passes, c.passes)
		}
	}

	for cause, passes := range map[error]bool{
		io.EOF: true, io.ErrUnexpectedEOF: true, sftp.ErrSSHFxConnectionLost: true, fs.ErrPermission: false,
	} {
		if got := fault(t.Context(), cause); errors.Is(got, delivery.ErrUnavailable) != passes {
			t.Errorf("%v may pass: %t, want %t", cause, !passes, passes)
		}
	}
}
