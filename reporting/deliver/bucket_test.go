package deliver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"vendorapi/internal/delivery"
)

const large = "payments.csv" // of theSet

// wantParts checks that theSet's larger file was uploaded so many times, each in four parts and a rest.
func (s *s3Server) wantParts(t *testing.T, uploads int) {
	t.Helper()
	if begun, parts, ended := s.count("POST uploads"), s.count("PUT partNumber"), s.count("POST uploadId"); begun != uploads || parts != 5*uploads || ended != uploads {
		t.Errorf("%d uploads were begun, %d parts sent, %d ended", begun, parts, ended)
	}
}

func TestBucket_SendsALargeFileInParts(t *testing.T) {
	t.Parallel()

	s := fakeS3InParts(t)
	files := theSet()
	_, err := deliverTo(t.Context(), s.open(t), files)
	must(t, err)
	s.wantParts(t, 1)
	if !maps.Equal(s.files(), whole(t, files)) {
		t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
	}
	if left := s.unfinished(t); len(left) > 0 {
		t.Errorf("unfinished: %q", left)
	}

	info, err := s.client.StatObject(t.Context(), "books", "closed/"+month+"/"+large, minio.StatObjectOptions{})
	must(t, err)
	if info.UserMetadata["Sha256"] != files[1].SHA256 {
		t.Errorf("its metadata: %v", info.UserMetadata)
	}
}

// The server compares a file, or a part of it, with the digest in a header.
func TestBucket_GivesTheServerTheDigestOfWhatItSends(t *testing.T) {
	t.Parallel()

	digest := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		return base64.StdEncoding.EncodeToString(sum[:])
	}

	part := strings.Repeat("0123456789abcde\n", 1<<16) // of the larger file, which has four and a line
	inParts := map[string]string{
		"orders.csv": digest("id;sum\n1;2\n"), "empty.csv": digest(""), "manifest.json": digest(manifest),
		large + " 1": digest(part), large + " 2": digest(part), large + " 3": digest(part), large + " 4": digest(part),
		large + " 5": digest("0123456789abcde\n"),
	}

	whole := map[string]string{
		"orders.csv": digest("id;sum\n1;2\n"), "empty.csv": digest(""), "manifest.json": digest(manifest),
		large: digest(strings.Repeat(part, 4) + "0123456789abcde\n"),
	}

	for _, c := range []struct {
		server *s3Server
		want   map[string]string
	}{{fakeS3(t), whole}, {fakeS3InParts(t), inParts}} {
		var mu sync.Mutex
		given := map[string]string{}
		note := func(r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method == http.MethodPut {
				name := strings.TrimSpace(path.Base(r.URL.Path) + " " + r.URL.Query().Get("partNumber"))
				given[name] = r.Header.Get("X-Amz-Checksum-Sha256")
			}
		}

		c.server.before.Store(&note)

		_, err := deliverTo(t.Context(), c.server.open(t), theSet())

		must(t, err)
		if !maps.Equal(given, c.want) {
			t.Errorf("the digests are %v, want %v", given, c.want)
		}
	}
}

// Wherever an upload is cut off, nothing is there under the file's name, and the next one leaves nothing behind.
func TestBucket_AnUploadInPartsIsCutOff(t *testing.T) {
	t.Parallel()

	for _, at := range []int64{64 << 10, 1<<20 + 100, 2 << 20, 3<<20 + 7, 4<<20 + 1<<10} {
		s := fakeS3InParts(t)
		target, files := s.open(t), theSet()
		s.after(at, cut)
		said, err := deliverTo(t.Context(), target, files)
		if !errors.Is(err, delivery.ErrUnavailable) || !slices.Equal(said, []string{"orders.csv sent"}) {
			t.Errorf("cut off after %d bytes: said %q and %v", at, said, err)
		}
		if there := s.files(); len(there) != 1 {
			t.Errorf("cut off after %d bytes, there are %q", at, slices.Sorted(maps.Keys(there)))
		}

		s.repair()
		_, err = deliverTo(t.Context(), target, files)
		must(t, err)
		if !maps.Equal(s.files(), whole(t, files)) {
			t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
		}
		if left := s.unfinished(t); len(left) > 0 {
			t.Errorf("cut off after %d bytes, unfinished: %q", at, left)
		}
	}
}

// The server refuses a part, also the last request: the upload is ended at once.
func TestBucket_EndsAnUploadThatFails(t *testing.T) {
	t.Parallel()

	for request, nth := range map[string]int{"PUT partNumber": 3, "POST uploadId": 1} {
		s := fakeS3InParts(t)
		s.onRequest(request, nth, func(r *http.Request) {
			query := r.URL.Query()
			query.Set("partNumber", "0") // there is none
			query.Set("uploadId", query.Get("uploadId")+"0")
			r.URL.RawQuery = query.Encode()
		})

		_, err := deliverTo(t.Context(), s.open(t), theSet())
		if err == nil || len(s.unfinished(t)) > 0 || len(s.files()) != 1 {
			t.Errorf("%s %d: %v; unfinished are %q", request, nth, err, s.unfinished(t))
		}
	}

	s := fakeS3InParts(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.onRequest("PUT partNumber", 3, func(*http.Request) { cancel() })
	_, err := deliverTo(ctx, s.open(t), theSet())
	if !errors.Is(err, context.Canceled) || len(s.unfinished(t)) > 0 {
		t.Errorf("the program ends: %v; unfinished are %q", err, s.unfinished(t))
	}
}

// What is corrupted on its way is refused, and sent again later.
func TestBucket_APartIsCorrupted(t *testing.T) {
	t.Parallel()

	s := fakeS3InParts(t)
	target, files := s.open(t), theSet()
	s.onRequest("PUT partNumber", 2, func(r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body[12345] ^= 1
		r.Body = io.NopCloser(strings.NewReader(string(body)))
	})

	_, err := deliverTo(t.Context(), target, files)
	if !errors.Is(err, delivery.ErrUnavailable) || !strings.Contains(err.Error(), large+": part 2: ") {
		t.Errorf("%v", err)
	}

	if len(s.files()) != 1 || len(s.unfinished(t)) > 0 {
		t.Errorf("%d files, unfinished: %q", len(s.files()), s.unfinished(t))
	}

	_, err = deliverTo(t.Context(), target, files)
	must(t, err)
	if !maps.Equal(s.files(), whole(t, files)) {
		t.Errorf("there are %v", slices.Sorted(maps.Keys(s.files())))
	}
}

// Another process finishes the file while this one sends it, at any step: the file is there once, whoever sent it.
func TestBucket_AnotherProcessFinishesTheSameFile(t *testing.T) {
	t.Parallel()

	for request, nth := range map[string]int{"POST uploads": 1, "PUT partNumber": 3, "POST uploadId": 1} {
		for _, ignores := range []bool{true, false} {
			s := fakeS3InParts(t)
			s.ignoresConditions = ignores
			target, other, files := s.open(t), s.open(t), theSet()
			s.onRequest(request, nth, func(*http.Request) {
				s.before.Store(nil)
				if _, err := deliverTo(t.Context(), other, files); err != nil {
					t.Error(err)
				}
			})

			said, err := deliverTo(t.Context(), target, files)
			if want := []string{"orders.csv sent", large + " there", "empty.csv there", "manifest.json there"}; err != nil || !slices.Equal(said, want) {
				t.Errorf("%s, %t: said %q and %v", request, ignores, said, err)
			}
			if !maps.Equal(s.files(), whole(t, files)) || len(s.unfinished(t)) > 0 {
				t.Errorf("%s: there are %v, unfinished %q", request, slices.Sorted(maps.Keys(s.files())), s.unfinished(t))
			}
		}
	}
}

// Somebody puts another file there while this one is sent. Servers that know conditions keep it at any moment, others
// up to the last look.
func TestBucket_KeepsAFileThatAppearsMeanwhile(t *testing.T) {
	t.Parallel()

	name := path.Join(month, large)
	for request, ignores := range map[string]bool{"POST uploadId": false, "PUT partNumber": true} {
		s := fakeS3InParts(t)
		s.ignoresConditions = ignores
		s.onRequest(request, 1, func(*http.Request) { s.put(name, "somebody else's") })
		_, err := deliverTo(t.Context(), s.open(t), theSet())
		if !errors.Is(err, ErrDiffers) || s.files()[name] != "somebody else's" || len(s.unfinished(t)) > 0 {
			t.Errorf("%s: %v; there is %.20q, unfinished are %q", request, err, s.files()[name], s.unfinished(t))
		}
	}
}

// What processes left that were killed is removed with the next success; another file's upload stays.
func TestBucket_RemovesWhatOthersLeft(t *testing.T) {
	t.Parallel()

	s := fakeS3InParts(t)
	key := "closed/" + month + "/" + large
	for _, one := range []string{key, key, key + ".old"} {
		_, err := s.client.NewMultipartUpload(t.Context(), "books", one, minio.PutObjectOptions{})
		must(t, err)
	}

	_, err := deliverTo(t.Context(), s.open(t), theSet())
	must(t, err)
	if left := s.unfinished(t); !slices.Equal(left, []string{key + ".old"}) {
		t.Errorf("unfinished: %q", left)
	}
}
