package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// Place holds the backups of one environment, each named by the time at which it began: in a
// folder, or below a prefix in S3. One without backup.json is being written or was cut short.
type Place struct {
	dir            string        // of the backups, or where one is made before it is uploaded
	s3             *minio.Client // nil: the place is dir
	bucket, prefix string        // prefix is empty or ends in /
}

const (
	nameForm      = "20060102T150405Z"
	partialSuffix = ".partial"
	abandoned     = 2 * longest // nobody writes any more what was begun so long ago
	retryAfter    = 10 * time.Minute
	lookAgain     = time.Hour // clocks are set, and backups removed by hand
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
	server, unread := config.Variable("AWS_ENDPOINT_URL")
	region, unreadToo := config.Variable("AWS_REGION")
	endpoint, malformed := url.Parse(cmp.Or(server, "https://s3.amazonaws.com"))
	if err := errors.Join(missing, other, unread, unreadToo, malformed); err != nil || bucket == "" {
		return nil, cmp.Or(err, errors.New("no bucket is named"))
	}

	client, err := minio.New(endpoint.Host, &minio.Options{Creds: credentials.NewStaticV4(id, key, ""),
		Secure: endpoint.Scheme != "http", Region: cmp.Or(region, "us-east-1")})

	return &Place{filepath.Join(os.TempDir(), "reporting-backup"), client, bucket, prefix}, err
}

// Take makes a backup there, then removes older whole ones until there are o.Keep, and what
// was abandoned, unless that is 0. Whatever has another name is left alone. The backup is whole when one is
// returned, even with an error.
func (p *Place) Take(ctx context.Context, l *ledger.Ledger, a *archive.Archive, o Options) (*Manifest, error) {
	name := time.Now().UTC().Format(nameForm)
	o.To, o.uploaded = filepath.Join(p.dir, name), p.s3 != nil
	m, err := Make(ctx, l, a, o)
	if err != nil {
		return nil, err
	}

	if p.s3 != nil {
		err = p.upload(ctx, m, name, o.Progress)
		if err != nil {
			return nil, err
		}
		err = (&Place{dir: p.dir}).prune(ctx, name, 1, o.Progress)
	}

	if o.Keep > 0 {
		err = errors.Join(err, p.prune(ctx, name, o.Keep, o.Progress))
	}

	return m, err
}

// upload moves a folder to S3, backup.json last. Meanwhile it has the name of a partial one. The list of
// erasures is not there: it has to be kept where whoever erases can add to it.
func (p *Place) upload(ctx context.Context, m *Manifest, name string, progress func(string)) (err error) {
	defer wrap("backup: uploading", &err)
	dir := filepath.Join(p.dir, name+partialSuffix)
	if err := os.Rename(filepath.Join(p.dir, name), dir); err != nil {
		return err
	}

	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, file := range slices.Backward(append(m.files(), sumsFile)) {
		done, err := p.s3.FPutObject(ctx, p.bucket, p.prefix+path.Join(name, filepath.ToSlash(file)), filepath.Join(dir, file), minio.PutObjectOptions{})
		if err != nil {
			return delivery.Foreign(err)
		}
		progress(fmt.Sprintf("uploaded %s: %d bytes", file, done.Size))
	}

	return nil
}

func (p *Place) prune(ctx context.Context, made string, keep int, progress func(string)) (err error) {
	defer wrap("backup: removing old ones", &err)
	whole, gone, err := p.list(ctx)
	if err != nil {
		return err
	}

	whole = slices.DeleteFunc(whole, func(name string) bool { return name == made })
	for _, name := range append(gone, whole[:max(len(whole)+1-keep, 0)]...) {
		progress("removing " + name)
		err = errors.Join(err, p.remove(ctx, name))
	}

	return err
}

// list names the whole backups, oldest first, and the abandoned ones.
func (p *Place) list(ctx context.Context) (whole, gone []string, err error) {
	found, unknown := map[string]bool{}, map[string]error{} // whether backup.json is there
	if p.s3 == nil {
		entries, unread := os.ReadDir(p.dir)
		if !errors.Is(unread, fs.ErrNotExist) { // the first backup makes it
			err = unread
		}

		for _, e := range entries {
			_, none := os.Stat(filepath.Join(p.dir, e.Name(), manifestFile))
			found[e.Name()] = none == nil && !strings.HasSuffix(e.Name(), partialSuffix)
			if none != nil && !errors.Is(none, fs.ErrNotExist) && !errors.Is(none, syscall.ENOTDIR) {
				unknown[e.Name()] = none
			}
		}
	} else {
		for o := range p.s3.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.prefix, Recursive: true}) {
			name, file, _ := strings.Cut(strings.TrimPrefix(o.Key, p.prefix), "/")
			found[name] = found[name] || file == manifestFile
			err = errors.Join(err, delivery.Foreign(o.Err))
		}
	}

	for _, name := range slices.Sorted(maps.Keys(found)) {
		began, foreign := time.Parse(nameForm, strings.TrimSuffix(name, partialSuffix))
		switch {
		case foreign != nil: // it may be nobody's to look into, as lost+found is
		case unknown[name] != nil:
			err = errors.Join(err, unknown[name])
		case found[name]:
			whole = append(whole, name)
		case time.Since(began) > abandoned:
			gone = append(gone, name)
		}
	}

	return whole, gone, err
}

// remove begins with what makes it a backup: after a crash it is none.
func (p *Place) remove(ctx context.Context, name string) error {
	if p.s3 == nil {
		if err := os.Remove(filepath.Join(p.dir, name, manifestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.RemoveAll(filepath.Join(p.dir, name))
	}

	err := p.s3.RemoveObject(ctx, p.bucket, p.prefix+path.Join(name, manifestFile), minio.RemoveObjectOptions{})
	if err != nil {
		return delivery.Foreign(err)
	}

	for o := range p.s3.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.prefix + name + "/", Recursive: true}) {
		removal := errors.Join(o.Err, p.s3.RemoveObject(ctx, p.bucket, o.Key, minio.RemoveObjectOptions{}))
		err = errors.Join(err, delivery.Foreign(removal))
	}

	return err
}

// Due is how long the newest backup is good for, if each is for every; 0: the next one is
// due. One that is said to have begun in the future does not count.
func (p *Place) Due(ctx context.Context, every time.Duration) (left time.Duration, err error) {
	whole, _, err := p.list(ctx)
	for _, name := range whole {
		began, _ := time.Parse(nameForm, name) // so it is named
		if good := every - time.Since(began); good <= every {
			left = max(left, good)
		}
	}
	return left, err
}

// Repeat calls take whenever the newest backup is older than every, and after a failure again
// in ten minutes, until ctx ends.
func (p *Place) Repeat(ctx context.Context, every time.Duration, take func(context.Context) error, report func(string)) {
	for ctx.Err() == nil {
		wait, err := p.Due(ctx, every)
		if err == nil && wait == 0 {
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
