package deliver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// bucket is a place in S3.
type bucket struct {
	client       minio.Core
	name, prefix string // prefix is empty or ends in /
}

func openBucket(s TargetSettings, at, server *url.URL) (func(context.Context) (place, error), error) {
	id, key, err := s.secrets("KEY_ID", "SECRET")
	if err != nil {
		return nil, err
	}
	transport, err := minio.DefaultTransport(server.Scheme == "https")
	if err != nil {
		return nil, err
	}
	transport.DialContext = (&net.Dialer{Timeout: connectLimit}).DialContext
	client, err := minio.New(server.Host, &minio.Options{
		Creds: credentials.NewStaticV4(id, key, ""), Secure: server.Scheme == "https", Transport: transport,
		Region:          cmp.Or(at.Query().Get("region"), "us-east-1"),
		TrailingHeaders: true, // without, it takes no checksums
		MaxRetries:      1,    // the caller repeats
	})
	b := &bucket{minio.Core{Client: client}, at.Host, strings.TrimPrefix(strings.Trim(at.Path, "/")+"/", "/")}
	return func(context.Context) (place, error) { return b, nil }, err
}

func (b *bucket) read(ctx context.Context, name string, to io.Writer) error {
	content, _, _, err := b.client.GetObject(ctx, b.name, b.prefix+name, minio.GetObjectOptions{})
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok && answer.Code == minio.NoSuchKey {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(to, content)
	return err
}

// write sends a file in one request, since of several the server would compute another digest.
// The server compares the content with the digest, which is signed. The other way to sign it
// sends an empty file without its length.
func (b *bucket) write(ctx context.Context, name string, content io.Reader, size int64, sum []byte) error {
	options := minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true, UserMetadata: map[string]string{
		"sha256": hex.EncodeToString(sum), "x-amz-checksum-sha256": base64.StdEncoding.EncodeToString(sum),
	}}
	options.SetMatchETagExcept("*")
	_, err := b.client.Client.PutObject(ctx, b.name, b.prefix+name, content, size, options)
	if answer, ok := errors.AsType[minio.ErrorResponse](err); ok && answer.StatusCode == http.StatusPreconditionFailed {
		return fmt.Errorf("%w: %w", fs.ErrExist, err)
	}
	return err
}

func (b *bucket) close() {}
