// Package deliver puts sets of files where finance's books are kept: below a prefix in S3, or
// in a folder reached by SFTP. Of a set the manifest comes last, so whoever finds it there has
// the whole set. A file is complete under its name or not there, is never overwritten, and is
// sent once: after a failure the same call goes on with the file that it failed at.
package deliver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/pkg/sftp"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
)

// ErrDiffers means that a file is there with other content. It stays as it is.
var ErrDiffers = errors.New("it is there with other content, which was not touched")

// longestPause is the Target.LongestPause of every target.
const longestPause = time.Minute

var errStalled = fmt.Errorf("no progress for %s", longestPause)

// Settings are the section deliver of configs/reporting.yaml, where each key is explained.
type Settings struct {
	Targets []TargetSettings `yaml:"targets"`
	Daily   string           `yaml:"daily"`
}

// TargetSettings are an entry of deliver.targets.
type TargetSettings struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
}

var targetName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// Validate names the first key that is wrong.
func (s *Settings) Validate() error {
	if _, err := time.Parse("15:04", s.Daily); err != nil && s.Daily != "" {
		return errors.New("deliver.daily: want a time such as 07:00, or nothing")
	}

	for i, t := range s.Targets {
		key := fmt.Sprintf("deliver.targets[%d]", i)
		if !targetName.MatchString(t.Name) {
			return fmt.Errorf("%s.name: want a-z, 0-9 and -", key)
		}
		if slices.ContainsFunc(s.Targets[:i], func(other TargetSettings) bool { return other.Name == t.Name }) {
			return fmt.Errorf("%s.name: %s is there twice", key, t.Name)
		}
		if _, _, err := t.parse(); err != nil {
			return fmt.Errorf("%s.url: %w", key, err)
		}
	}

	return nil
}

// parse returns the address and, for S3, that of the server. It does not repeat what it refuses: there
// may be a password in it.
func (s TargetSettings) parse() (at, server *url.URL, err error) {
	at, err = url.Parse(s.URL)
	if err != nil || at.Hostname() == "" || at.Fragment != "" || path.Clean("/"+at.Path) != "/"+strings.Trim(at.Path, "/") {
		return nil, nil, errWant
	}

	query, user := at.Query(), at.User.Username()
	_, password := at.User.Password()
	switch {
	case at.Scheme == "sftp" && user != "" && !password && at.RawQuery == "":
		return at, nil, nil
	case at.Scheme != "s3" || at.User != nil || at.Port() != "":
		return nil, nil, errWant
	}

	server, err = url.Parse(cmp.Or(query.Get("endpoint"), "https://s3.amazonaws.com"))
	query.Del("endpoint")
	query.Del("region")
	if err != nil || len(query) > 0 || server.Host == "" || server.User != nil || strings.Trim(server.Path, "/") != "" ||
		server.Scheme != "https" && server.Scheme != "http" {
		return nil, nil, errWant
	}

	return at, server, nil
}

var errWant = errors.New("want s3://bucket/prefix?endpoint=https://host:port&region=name or sftp://user@host:port/folder, without . and .. and without password")

// Open reads the secrets of all targets.
func (s *Settings) Open() (targets []*Target, err error) {
	for _, t := range s.Targets {
		target, wrong := Open(t)
		targets, err = append(targets, target), errors.Join(err, wrong)
	}
	return targets, err
}

// secrets reads two of a target from the environment, and names both when both are missing.
func (s TargetSettings) secrets(one, other string) (first, second string, err error) {
	first, missing := config.Secret(s.variable(one))
	second, absent := config.Secret(s.variable(other))
	return first, second, errors.Join(missing, absent)
}

func (s TargetSettings) variable(of string) string {
	return "DELIVER_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")) + "_" + of
}

// Target is one place, named in the settings.
type Target struct {
	Name string

	// LongestPause is how long a connection or a transfer may go without progress before it is ended. It is the constant
	// longestPause outside tests.
	LongestPause time.Duration

	open func(context.Context) (place, error) // which works until the context ends
}

// place is where the files of a target are; names are paths below it.
type place interface {
	// read fails with fs.ErrNotExist if the file is not there.
	read(ctx context.Context, name string) (io.ReadCloser, error)
	// write leaves a file that is there as it is and fails with fs.ErrExist.
	write(ctx context.Context, name string, content *upload) error
	// folders lists the folders by name. It is empty when nothing was ever written.
	folders(ctx context.Context) ([]string, error)
}

// upload is the content of a file that is sent.
type upload struct {
	file     io.ReaderAt
	size     int64
	sum      []byte    // SHA-256
	progress io.Writer // gets all that is read for sending
}

// reader reads the whole content.
func (u *upload) reader() io.Reader { return u.part(0, u.size) }

// part reads size bytes from offset on.
func (u *upload) part(offset, size int64) io.Reader {
	return io.TeeReader(io.NewSectionReader(u.file, offset, size), u.progress)
}

// Open reads the secrets of a target. It connects to nothing.
func Open(s TargetSettings) (*Target, error) {
	t := &Target{Name: s.Name, LongestPause: longestPause}
	at, server, err := s.parse()
	if err == nil && server != nil {
		t.open, err = openBucket(s, at, server)
	} else if err == nil {
		t.open, err = openFolder(s, at)
	}

	if err != nil {
		return nil, fmt.Errorf("deliver to %s: %w", s.Name, err)
	}

	return t, nil
}

// File is one of a set.
type File struct {
	Name   string
	SHA256 string // of its content, in lower-case hex
	// Write writes the content. It is not called for a file that is there.
	Write func(context.Context, io.Writer) error
}

// Deliver puts the files into a folder, in their order; the last one is the manifest. done is
// called after each file that is there; sent is false if another call sent it. The content
// goes through a temporary file and is compared with its digest before any of it is sent.
//
// An error wraps delivery.ErrUnavailable when the call may succeed later, and ErrDiffers when
// a file is there with other content. The end of ctx is neither.
func (t *Target) Deliver(ctx context.Context, folder string, files []File, done func(f File, sent bool)) error {
	return t.each(ctx, folder, files, func(ctx context.Context, s session, f File) error {
		there, err := s.holds(ctx, f)
		sent := false
		if err == nil && !there {
			sent, err = s.send(ctx, f)
		}

		if err == nil {
			s.pause.Stop() // done takes the time that it needs
			done(f, sent)
		}

		return err
	})
}

// Check reads the files that are there and compares them with their digests. It returns one
// sentence for each file that is missing or differs. Errors are as those of Deliver.
func (t *Target) Check(ctx context.Context, folder string, files []File) (wrong []string, err error) {
	err = t.each(ctx, folder, files, func(ctx context.Context, s session, f File) error {
		there, err := s.holds(ctx, f)
		if errors.Is(err, ErrDiffers) {
			wrong = append(wrong, fmt.Sprintf("%s/%s at %s is not what was delivered.", folder, f.Name, t.Name))
			return nil
		}

		if err == nil && !there {
			wrong = append(wrong, fmt.Sprintf("%s/%s is missing at %s.", folder, f.Name, t.Name))
		}
		return err
	})

	return wrong, err
}

// Folders lists the folders at the target by name. Errors are as those of Deliver.
func (t *Target) Folders(ctx context.Context) (names []string, err error) {
	err = t.connected(ctx, "", func(ctx context.Context, s session) error {
		names, err = s.folders(ctx)
		if err != nil {
			return fmt.Errorf("list of folders: %w", fault(ctx, err))
		}
		return nil
	})
	return names, err
}

// Read returns a file of a folder, or its first maxSize bytes. It is nil when the file is not there.
// Errors are as those of Deliver.
func (t *Target) Read(ctx context.Context, folder, name string, maxSize int64) (content []byte, err error) {
	err = t.each(ctx, folder, []File{{Name: name}}, func(ctx context.Context, s session, f File) error {
		file, err := s.read(ctx, path.Join(s.folder, f.Name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}

		if err != nil {
			return err
		}
		defer file.Close()

		content, err = io.ReadAll(io.TeeReader(io.LimitReader(file, maxSize), s))

		return err
	})

	return content, err
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// session is a connection to a place, and a timer that ends it when nothing is written to the
// session for longestPause.
type session struct {
	place
	folder       string
	longestPause time.Duration
	pause        *time.Timer
}

func (s session) Write(b []byte) (int, error) {
	s.pause.Reset(s.longestPause)
	return len(b), nil
}

// each connects and works on one file after the other.
func (t *Target) each(ctx context.Context, folder string, files []File, work func(context.Context, session, File) error) error {
	for _, f := range append([]File{{Name: folder}}, files...) {
		if !plainName.MatchString(f.Name) {
			return fmt.Errorf("deliver to %s: %q: want a name of A-Z, a-z, 0-9, dots, _ and -", t.Name, f.Name)
		}
	}

	return t.connected(ctx, folder, func(ctx context.Context, s session) error {
		for _, f := range files {
			s.pause.Reset(s.longestPause)
			if err := work(ctx, s, f); err != nil {
				return fmt.Errorf("%s/%s: %w", folder, f.Name, fault(ctx, err))
			}
		}
		return nil
	})
}

// connected connects, and works in one session.
func (t *Target) connected(ctx context.Context, folder string, work func(context.Context, session) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := session{folder: folder, longestPause: t.LongestPause}
	s.pause = time.AfterFunc(s.longestPause, func() { cancel(errStalled) })
	defer s.pause.Stop()

	var err error
	s.place, err = t.open(ctx)
	if err != nil {
		err = fault(ctx, err)
	} else {
		err = work(ctx, s)
	}

	if err != nil {
		return fmt.Errorf("deliver to %s: %w", t.Name, err)
	}

	return nil
}

// holds reports whether a file is there with its content.
func (s session) holds(ctx context.Context, f File) (bool, error) {
	content, err := s.read(ctx, path.Join(s.folder, f.Name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}

	defer content.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(hash, s), content); err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != f.SHA256 {
		return false, fmt.Errorf("%w: its SHA-256 is %s, not %s", ErrDiffers, got, f.SHA256)
	}

	return true, nil
}

// send reports whether this call sent the file; another process may have been faster.
func (s session) send(ctx context.Context, f File) (bool, error) {
	s.pause.Stop() // how long it takes to write the content is not the target's fault
	content, err := os.CreateTemp("", "deliver-")
	if err != nil {
		return false, err
	}
	defer content.Close()

	hash := sha256.New()
	if err := errors.Join(os.Remove(content.Name()), f.Write(ctx, io.MultiWriter(content, hash))); err != nil {
		return false, err
	}

	sum := hash.Sum(nil)
	if hex.EncodeToString(sum) != f.SHA256 {
		return false, fmt.Errorf("what would be delivered is not what was sealed: its SHA-256 is %x, not %s", sum, f.SHA256)
	}

	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return false, err
	}

	s.pause.Reset(s.longestPause)
	err = s.write(ctx, path.Join(s.folder, f.Name), &upload{file: content, size: size, sum: sum, progress: s})
	if !errors.Is(err, fs.ErrExist) {
		return err == nil, err
	}

	there, err := s.holds(ctx, f)
	if err == nil && !there {
		err = &unavailable{errors.New("it was there and is no longer")}
	}

	return false, err
}

// unavailable adds nothing to the text of its cause.
type unavailable struct{ cause error }

func (u *unavailable) Error() string   { return u.cause.Error() }
func (u *unavailable) Unwrap() []error { return []error{delivery.ErrUnavailable, u.cause} }

// fault says why something failed that was done until ctx ended, and whether that may pass.
func fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if !errors.Is(err, errStalled) {
			return err
		}
	}

	err = delivery.Foreign(err) // servers' answers are quoted
	if passes(err) {
		return &unavailable{err}
	}

	return err
}

// passingCodes are answers of S3 that say that the same request may succeed later, whatever their status. Those
// of digests say that something was corrupted on its way.
var passingCodes = []string{"RequestTimeout", "InternalError", "ServiceUnavailable", "SlowDown", "BadDigest", "XAmzContentSHA256Mismatch"}

var passingStatuses = []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests}

func passes(err error) bool {
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok {
		return answer.StatusCode >= http.StatusInternalServerError || slices.Contains(passingStatuses, answer.StatusCode) ||
			slices.Contains(passingCodes, answer.Code)
	}

	if _, refused := errors.AsType[*tls.CertificateVerificationError](err); refused {
		return false
	}

	_, network := errors.AsType[net.Error](err)

	return network || errors.Is(err, errStalled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, sftp.ErrSSHFxConnectionLost)
}
