package deliver

import (
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a place in S3.
type bucket struct {
	client       *minio.Core
	name, prefix string // prefix is empty or ends in /

	largestPut int64 // of a file that is sent in one request; a larger one is sent in parts
	partSize   int64
}

const (
	// largestPut is below what every server takes in one request; Amazon's take 5 GiB. Up to there a file
	// has the guarantees of a single request (write).
	largestPut = 1 << 30

	// partSize allows files of 640 GB: an upload has at most 10,000 parts.
	partSize = 64 << 20

	// abortTimeout is how long the end of an unfinished upload may take.
	abortTimeout = 10 * time.Second

	// maxUploads is how many unfinished uploads are removed at once.
	maxUploads = 100
)

func openBucket(s TargetSettings, at, server *url.URL) (func(context.Context) (place, error), error) {
	id, key, err := s.secrets("KEY_ID", "SECRET")
	if err != nil {
		return nil, err
	}

	client, err := minio.NewCore(server.Host, &minio.Options{
		Creds: credentials.NewStaticV4(id, key, ""), Secure: server.Scheme == "https",
		Region:          cmp.Or(at.Query().Get("region"), "us-east-1"),
		TrailingHeaders: true, // without, it takes no checksums
		MaxRetries:      1,    // the caller repeats
	})
	if err != nil {
		return nil, err
	}

	b := &bucket{
		client: client, name: at.Host, prefix: strings.TrimPrefix(strings.Trim(at.Path, "/")+"/", "/"),
		largestPut: largestPut, partSize: partSize,
	}

	return func(context.Context) (place, error) { return b, nil }, nil
}

func (b *bucket) read(ctx context.Context, name string) (io.ReadCloser, error) {
	content, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if hasCode(err, minio.NoSuchKey) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return content, err
}

func (b *bucket) folders(ctx context.Context) ([]string, error) {
	var names []string
	for object := range b.client.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix}) {
		if object.Err != nil {
			return nil, object.Err
		}
		name, isFolder := strings.CutSuffix(strings.TrimPrefix(object.Key, b.prefix), "/")
		if isFolder {
			names = append(names, name)
		}
	}

	return names, ctx.Err()
}

// write sends a file in one request, or in parts when it is larger than largestPut. The server compares
// what arrives with digests that are part of the signed request, so a file that was corrupted on its way
// is refused.
//
// Both end with a request that carries If-None-Match, so that a server that knows it never replaces a
// file. All do for a single request. Amazon's and those that follow it do when parts are put together.
// Others would replace a file there that appears between the last look, just before, and that request:
// one of another process of this program has the same digest, another one would be lost.
func (b *bucket) write(ctx context.Context, name string, content *upload) error {
	var err error
	if content.size <= b.largestPut {
		err = b.put(ctx, b.prefix+name, content)
	} else {
		err = b.putInParts(ctx, b.prefix+name, content)
	}

	answer, isAnswer := errors.AsType[minio.ErrorResponse](err)
	if isAnswer && answer.StatusCode == http.StatusPreconditionFailed {
		return fmt.Errorf("%w: %w", fs.ErrExist, err)
	}

	return err
}

// put lets the server compare the content with its digest in a header. The other way to sign it sends an
// empty file without its length.
func (b *bucket) put(ctx context.Context, key string, content *upload) error {
	options := minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true, UserMetadata: map[string]string{
		"sha256":                hex.EncodeToString(content.sum),
		"x-amz-checksum-sha256": base64.StdEncoding.EncodeToString(content.sum),
	}}
	options.SetMatchETagExcept("*")
	_, err := b.client.Client.PutObject(ctx, b.name, key, content.reader(), content.size, options)
	return err
}

// putInParts ends the upload if it fails, so that nothing of it stays at the server.
func (b *bucket) putInParts(ctx context.Context, key string, content *upload) error {
	id, err := b.client.NewMultipartUpload(ctx, b.name, key, minio.PutObjectOptions{UserMetadata: map[string]string{
		"sha256":                   hex.EncodeToString(content.sum),
		"x-amz-checksum-algorithm": minio.ChecksumSHA256.String(),
	}})
	if err != nil {
		return err
	}

	err = b.finishParts(ctx, key, id, content)
	if err != nil {
		b.abort(ctx, key, id)
		if hasCode(err, minio.NoSuchUpload) {
			// Another process has finished the file and removed this upload.
			return fmt.Errorf("%w: %w", fs.ErrExist, err)
		}
		return err
	}

	b.tidy(ctx, key)

	return nil
}

func (b *bucket) finishParts(ctx context.Context, key, id string, content *upload) error {
	var parts []minio.CompletePart
	for offset := int64(0); offset < content.size; offset += b.partSize {
		part, err := b.putPart(ctx, key, id, len(parts)+1, content, offset)
		if err != nil {
			return err
		}
		parts = append(parts, part)
	}

	// Not every server knows the condition below.
	_, err := b.client.StatObject(ctx, b.name, key, minio.StatObjectOptions{})
	if err == nil {
		return fs.ErrExist
	}

	if !hasCode(err, minio.NoSuchKey) {
		return err
	}

	var options minio.PutObjectOptions
	options.SetMatchETagExcept("*")
	_, err = b.client.CompleteMultipartUpload(ctx, b.name, key, id, parts, options)

	return err
}

// putPart sends a part with its SHA-256, which the signature covers, and its MD5, which older servers
// compare.
func (b *bucket) putPart(ctx context.Context, key, id string, number int, content *upload, offset int64) (minio.CompletePart, error) {
	size := min(b.partSize, content.size-offset)
	sha, md := sha256.New(), md5.New()
	_, err := io.Copy(io.MultiWriter(sha, md), io.NewSectionReader(content.file, offset, size))
	if err != nil {
		return minio.CompletePart{}, err
	}

	header := http.Header{}
	header.Set(minio.ChecksumSHA256.Key(), base64.StdEncoding.EncodeToString(sha.Sum(nil)))
	sent, err := b.client.PutObjectPart(ctx, b.name, key, id, number, content.part(offset, size), size, minio.PutObjectPartOptions{
		Md5Base64:            base64.StdEncoding.EncodeToString(md.Sum(nil)),
		Sha256Hex:            hex.EncodeToString(sha.Sum(nil)),
		CustomHeader:         header,
		DisableContentSha256: true, // else it signs and sends chunks
	})
	if err != nil {
		return minio.CompletePart{}, fmt.Errorf("part %d: %w", number, err)
	}

	return minio.CompletePart{PartNumber: number, ETag: sent.ETag, ChecksumSHA256: sent.ChecksumSHA256}, nil
}

// abort ends an upload, also after the end of ctx. What is left of it if that fails is removed by tidy, once
// its file is there.
func (b *bucket) abort(ctx context.Context, key, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_ = b.client.AbortMultipartUpload(ctx, b.name, key, id)
}

// tidy removes unfinished uploads of a file that is there: of processes that died, and of those that are
// slower, which then find the file there. What cannot be removed is in nobody's way.
func (b *bucket) tidy(ctx context.Context, key string) {
	found, err := b.client.ListMultipartUploads(ctx, b.name, key, "", "", "", maxUploads)
	if err != nil {
		return
	}

	for _, upload := range found.Uploads {
		if upload.Key == key {
			b.abort(ctx, upload.Key, upload.UploadID)
		}
	}
}

func hasCode(err error, code string) bool {
	answer, isAnswer := errors.AsType[minio.ErrorResponse](err)
	return isAnswer && answer.Code == code
}
