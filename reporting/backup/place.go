package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"vendorapi/internal/config"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Place holds backups, each in a folder that is named by its time: below a folder, or below
// a prefix in S3. A folder without backup.json is none: it is being written or was cut short.
type Place struct {
	dir string // of the backups, or where one is made before it is uploaded

	s3             *minio.Client // nil: the place is dir
	bucket, prefix string        // prefix is empty or ends in /
}

const (
	nameForm      = "20060102T150405Z" // when it began, in UTC
	partialSuffix = ".partial"
)

// OpenPlace reads the path of a folder, or s3://bucket/prefix. It connects to nothing. The
// credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in the files that these
// with _FILE name; AWS_ENDPOINT_URL and AWS_REGION say which server.
func OpenPlace(at string) (_ *Place, err error) {
	rest, isS3 := strings.CutPrefix(at, "s3://")
	if !isS3 {
		return &Place{dir: at}, nil
	}
	defer wrap(at, &err)
	bucket, prefix, _ := strings.Cut(strings.TrimRight(rest, "/")+"/", "/")
	id, missing := config.Secret("AWS_ACCESS_KEY_ID")
	key, other := config.Secret("AWS_SECRET_ACCESS_KEY")
	endpoint, malformed := url.Parse(cmp.Or(os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com"))
	if err := errors.Join(missing, other, malformed); err != nil {
		return nil, err
	}
	client, err := minio.New(endpoint.Host, &minio.Options{Creds: credentials.NewStaticV4(id, key, ""),
		Secure: endpoint.Scheme != "http", Region: cmp.Or(os.Getenv("AWS_REGION"), "us-east-1")})
	return &Place{filepath.Join(os.TempDir(), "reporting-backup"), client, bucket, prefix}, err
}

// Take makes a backup there, and then removes whole ones of the same environment beside the
// newest keep, and what was cut short so long ago that nobody writes it any more. Whatever
// else is there is left alone. After an error with a manifest the backup is whole.
func (p *Place) Take(ctx context.Context, l *ledger.Ledger, a *archive.Archive, o Options, keep int) (*Manifest, error) {
	name := time.Now().UTC().Format(nameForm)
	o.To = filepath.Join(p.dir, name)
	m, err := Make(ctx, l, a, o)
	if err == nil && p.s3 != nil {
		err = p.upload(ctx, m, name, o.Progress)
	}
	if err != nil {
		return nil, err
	}
	if err = p.prune(ctx, m, keep, o.Progress); err == nil && p.s3 != nil {
		err = (&Place{dir: p.dir}).prune(ctx, m, 1, o.Progress)
	}
	return m, err
}

// upload moves a folder to S3, backup.json last. Meanwhile its name here is that of a partial one.
func (p *Place) upload(ctx context.Context, m *Manifest, name string, progress func(string)) (err error) {
	defer wrap("backup: uploading", &err)
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	dir := filepath.Join(p.dir, name+partialSuffix)
	if err := os.Rename(filepath.Join(p.dir, name), dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, file := range append(append([]string{sumsFile}, m.files()[1:]...), manifestFile) { // files()[0] is backup.json
		done, err := p.s3.FPutObject(ctx, p.bucket, p.prefix+path.Join(name, filepath.ToSlash(file)), filepath.Join(dir, file), minio.PutObjectOptions{})
		if err != nil {
			return err
		}
		progress(fmt.Sprintf("uploaded %s: %d bytes", file, done.Size))
	}
	return nil
}

func (p *Place) prune(ctx context.Context, made *Manifest, keep int, progress func(string)) (err error) {
	defer wrap("backup: removing old ones", &err)
	whole, partial, err := p.list(ctx)
	if err != nil {
		return err
	}
	whole = slices.DeleteFunc(whole, func(m *Manifest) bool { return m.Environment != made.Environment || m.ID == made.ID })
	for _, m := range whole[:max(len(whole)+1-keep, 0)] {
		partial = append(partial, m.name)
		progress("removing " + m.name)
	}
	for _, name := range partial {
		err = errors.Join(err, p.remove(ctx, name))
	}
	return err
}

// list reads the whole backups, oldest first, and names those that were cut short more than
// the time that two of them may take ago.
func (p *Place) list(ctx context.Context) (whole []*Manifest, partial []string, err error) {
	names, err := p.names(ctx)
	slices.Sort(names)
	for _, name := range names {
		began, foreign := time.Parse(nameForm, strings.TrimSuffix(name, partialSuffix))
		if foreign != nil {
			continue
		}
		m, err := p.manifest(ctx, name)
		switch {
		case err == nil:
			m.name = name
			whole = append(whole, m)
		case errors.Is(err, fs.ErrNotExist) && time.Since(began) > 2*longest:
			partial = append(partial, name)
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged): // a damaged one is for people to look at
			return nil, nil, err
		}
	}
	return whole, partial, err
}

func (p *Place) names(ctx context.Context) (names []string, err error) {
	if p.s3 == nil {
		entries, err := os.ReadDir(p.dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if errors.Is(err, fs.ErrNotExist) { // the first backup makes it
			err = nil
		}
		return names, err
	}
	for o := range p.s3.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.prefix}) {
		if o.Err != nil {
			return nil, o.Err
		}
		names = append(names, path.Base(o.Key))
	}
	return names, nil
}

// manifest is fs.ErrNotExist where there is no whole backup.
func (p *Place) manifest(ctx context.Context, name string) (*Manifest, error) {
	var text []byte
	var err error
	switch {
	case strings.HasSuffix(name, partialSuffix):
		return nil, fs.ErrNotExist
	case p.s3 == nil:
		text, err = os.ReadFile(filepath.Join(p.dir, name, manifestFile))
	default:
		var o *minio.Object
		if o, err = p.s3.GetObject(ctx, p.bucket, p.prefix+path.Join(name, manifestFile), minio.GetObjectOptions{}); err == nil {
			defer func() { _ = o.Close() }() // only read
			text, err = io.ReadAll(o)
		}
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			err = fs.ErrNotExist
		}
	}
	if err != nil {
		return nil, err
	}
	return parse(name, text)
}

// remove begins with what makes it a backup: after a crash it is none.
func (p *Place) remove(ctx context.Context, name string) error {
	if p.s3 == nil {
		partial := filepath.Join(p.dir, strings.TrimSuffix(name, partialSuffix)+partialSuffix)
		if err := os.Rename(filepath.Join(p.dir, name), partial); err != nil {
			return err
		}
		return os.RemoveAll(partial)
	}
	err := p.s3.RemoveObject(ctx, p.bucket, p.prefix+path.Join(name, manifestFile), minio.RemoveObjectOptions{})
	if err != nil {
		return err
	}
	for o := range p.s3.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.prefix + name + "/", Recursive: true}) {
		if o.Err != nil {
			return o.Err
		}
		err = errors.Join(err, p.s3.RemoveObject(ctx, p.bucket, o.Key, minio.RemoveObjectOptions{}))
	}
	return err
}

// Due is how long the newest whole backup is good for, if each is for every: at most 0 when
// the next one is due. One that is said to have begun in the future does not count.
func (p *Place) Due(ctx context.Context, every time.Duration) (left time.Duration, err error) {
	whole, _, err := p.list(ctx)
	for _, m := range whole {
		if good := every - time.Since(m.Began); good <= every {
			left = max(left, good)
		}
	}
	return left, err
}

const (
	retryAfter = 10 * time.Minute
	lookAgain  = time.Hour // clocks are set, and backups removed by hand
)

// Repeat calls take whenever the newest backup is older than every, and after a failure again
// in ten minutes, until ctx ends.
func (p *Place) Repeat(ctx context.Context, every time.Duration, take func(context.Context) error, report func(string)) {
	for ctx.Err() == nil {
		wait, err := p.Due(ctx, every)
		if err == nil && wait <= 0 {
			err = take(ctx)
		}
		if err != nil && ctx.Err() == nil {
			wait = min(retryAfter, every)
			report(fmt.Sprintf("FAILED, and begun again in %s: %v", wait, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(wait, lookAgain)):
		}
	}
}
