package backup

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/promises"
)

// The documents name these.
func TestPromises_Figures(t *testing.T) {
	t.Parallel()

	operations := promises.In(t, promises.Operations)
	operations.Promises(ledger.HoldLifetime, 24*time.Hour, "ignored after 24 hours and removed by the next backup")
	operations.Promises(longest, 12*time.Hour, "a backup ends after 12")
	operations.Promises(abandoned, 24*time.Hour, "what was cut short is removed after a day")
	operations.Promises(retryAfter, 10*time.Minute, "tries again ten minutes after a failure")
}

// folderWith is a place with whole backups and, of names that end in /, folders without backup.json.
func folderWith(t *testing.T, names ...string) *Place {
	t.Helper()
	p := &Place{dir: filepath.Join(t.TempDir(), "[backups]")}
	for _, name := range names {
		p.make(t, name)
	}
	return p
}

func (p *Place) make(t *testing.T, name string) {
	t.Helper()
	dir := filepath.Join(p.dir, name)
	noError(t, os.MkdirAll(dir, 0o700))
	if !strings.HasSuffix(name, "/") {
		noError(t, os.WriteFile(filepath.Join(dir, manifestFile), []byte("{}"), 0o600))
	}
}

func (p *Place) left(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	noError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestPrune_KeepsTheNewestAndWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()

	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(nameForm) }
	soon, now, yesterday, earlier := ago(-time.Hour), ago(0), ago(24*time.Hour-time.Minute), ago(24*time.Hour+time.Second)
	foreign := []string{"20250101", "20250101T000000Z-mine", "before-20250101T000000Z", "notes"}
	for name, c := range map[string]struct {
		keep        int
		there, want []string
	}{
		"the newest two":             {2, []string{"20250101T000000Z", "20250102T000000Z", "20250103T000000Z", now}, []string{"20250103T000000Z", now}},
		"fewer than to be kept":      {14, []string{"20250101T000000Z", now}, []string{"20250101T000000Z", now}},
		"the new one, whatever else": {1, []string{"20250101T000000Z", now, soon}, []string{now}},
		"none but the new one":       {3, []string{now}, []string{now}},
		"cut short long ago":         {2, []string{"20250101T000000Z/", "20250102T000000Z.partial", "20250103T000000Z.partial/", now}, []string{now}},
		"being written":              {1, []string{now, soon + ".partial", soon[:15] + "Z/"}, []string{now, soon, soon + ".partial"}},
		"begun a day ago":            {1, []string{now, yesterday + ".partial/", earlier + ".partial/"}, []string{yesterday + ".partial", now}},
	} {
		p := folderWith(t, append(c.there, foreign...)...)
		noError(t, p.prune(t.Context(), now, c.keep, quiet))
		want := append(slices.Clone(c.want), foreign...)
		slices.Sort(want)
		if left := p.left(t); !slices.Equal(left, want) {
			t.Errorf("%s: left are %v, want %v", name, left, want)
		}
	}
}

// A schedule that cannot see what is there removes nothing, nor does a backup by hand.
func TestPrune_RemovesNothingOnADoubt(t *testing.T) {
	t.Parallel()

	now := time.Now().UTC().Format(nameForm)
	p := folderWith(t, "20250101T000000Z", "20250102T000000Z", "20250103T000000Z/", now)
	unknown := filepath.Join(p.dir, "20250104T000000Z")
	noError(t, os.Symlink(unknown, unknown)) // root may look into every folder, but not follow that
	before := p.left(t)
	if err := p.prune(t.Context(), now, 1, quiet); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("what cannot be looked into: %v", err)
	}
	if left := p.left(t); !slices.Equal(left, before) {
		t.Errorf("left are %v of %v", left, before)
	}

	noError(t, os.Remove(unknown))
	noError(t, os.Symlink("self", filepath.Join(p.dir, "self"))) // not its own, whatever it is
	noError(t, os.WriteFile(filepath.Join(p.dir, "20250105T000000Z"), nil, 0o600))
	if whole, gone, err := p.list(t.Context()); err != nil || len(whole) != 3 || len(gone) != 2 {
		t.Errorf("%v, %v, %v", whole, gone, err)
	}
}

// inS3 is a place in a server in this process, and the requests that change something there, such as
// "PUT b/20250101T000000Z/backup.json".
func inS3(t *testing.T) (p *Place, changes func() []string) {
	t.Helper()
	backend := s3mem.New()
	noError(t, backend.CreateBucket("bucket"))
	store := gofakes3.New(backend).Server()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodDelete {
			mu.Lock()
			seen = append(seen, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/bucket/"))
			mu.Unlock()
		}
		store.ServeHTTP(w, r)
	}))

	t.Cleanup(server.Close)
	client, err := minio.New(server.Listener.Addr().String(), &minio.Options{Creds: credentials.NewStaticV4("key", "geheim", ""), Region: "us-east-1"})
	noError(t, err)

	place := &Place{dir: t.TempDir(), s3: client, bucket: "bucket", prefix: "b/"}

	return place, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// Of a backup in S3, backup.json comes last and goes first: whoever finds it has all of the backup.
func TestPlace_InS3ABackupIsWholeOrNone(t *testing.T) {
	t.Parallel()

	p, changes := inS3(t)
	m := &Manifest{Redis: []Redis{{File: "redis-0.rdb"}}, Tables: []Table{{File: "orders.native.zst"}}}
	const name = "20250101T000000Z"
	for _, file := range append(m.files(), sumsFile) {
		noError(t, writeFile(filepath.Join(p.dir, name, file), []byte(file)))
	}

	noError(t, p.upload(t.Context(), m, name, quiet))

	uploaded := changes()
	if len(uploaded) != 4 || uploaded[3] != "PUT b/"+name+"/backup.json" {
		t.Errorf("uploaded were %q", uploaded)
	}
	if left := p.left(t); len(left) > 0 {
		t.Errorf("left on this side are %q", left)
	}

	whole, gone, err := p.list(t.Context())
	if err != nil || !slices.Equal(whole, []string{name}) || len(gone) > 0 {
		t.Errorf("there are %q, abandoned are %q: %v", whole, gone, err)
	}

	noError(t, p.remove(t.Context(), name))

	removed := changes()[4:]
	if len(removed) < 4 || removed[0] != "DELETE b/"+name+"/backup.json" {
		t.Errorf("removed were %q", removed)
	}

	whole, gone, err = p.list(t.Context())
	if err != nil || len(whole)+len(gone) > 0 {
		t.Errorf("there are %q, abandoned are %q: %v", whole, gone, err)
	}
}

// A backup that was cut short in S3 is removed a day after it began, and not while it can still be written.
func TestPrune_InS3(t *testing.T) {
	t.Parallel()

	p, _ := inS3(t)
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(nameForm) }
	made, yesterday, earlier, old := ago(0), ago(24*time.Hour-time.Minute), ago(24*time.Hour+time.Second), ago(50*time.Hour)
	for _, file := range []string{
		made + "/backup.json", yesterday + "/redis-0.rdb", earlier + "/redis-0.rdb", old + "/backup.json", old + "/redis-0.rdb", "notes/backup.json",
	} {
		_, err := p.s3.PutObject(t.Context(), "bucket", "b/"+file, strings.NewReader("x"), 1, minio.PutObjectOptions{})
		noError(t, err)
	}

	noError(t, p.prune(t.Context(), made, 1, quiet))

	var left []string
	for object := range p.s3.ListObjectsIter(t.Context(), "bucket", minio.ListObjectsOptions{Recursive: true}) {
		noError(t, object.Err)
		left = append(left, object.Key)
	}

	slices.Sort(left)
	if want := []string{"b/" + yesterday + "/redis-0.rdb", "b/" + made + "/backup.json", "b/notes/backup.json"}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

func TestTake_RemovesOldOnesOnlyWhenToldHowManyToKeep(t *testing.T) {
	t.Parallel()

	for keep, want := range []int{5, 2} { // with the list of erasures
		p := folderWith(t, "20250101T000000Z", "20250102T000000Z", "20250103T000000Z/")
		_, err := p.Take(t.Context(), newEnv(t).OpenAs(stack.BackupUser), nil, Options{Keep: keep, Progress: quiet})
		noError(t, err)
		if left := p.left(t); len(left) != want {
			t.Errorf("keep %d: left are %v", keep, left)
		}
	}
}

func TestDue_GoesByTheNewestWholeBackup(t *testing.T) {
	t.Parallel()

	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(nameForm) }
	for name, c := range map[string]struct {
		there []string
		want  time.Duration
	}{
		"none":                {nil, 0},
		"a fresh one":         {[]string{ago(50 * time.Hour), ago(2 * time.Hour)}, 22 * time.Hour},
		"an old one":          {[]string{ago(25 * time.Hour)}, 0},
		"one cut short":       {[]string{ago(25 * time.Hour), ago(time.Hour) + "/", ago(2*time.Hour) + ".partial"}, 0},
		"one of the future":   {[]string{ago(-48 * time.Hour)}, 0},
		"what is not its own": {[]string{"latest"}, 0},
	} {
		left, err := folderWith(t, c.there...).Due(t.Context(), 24*time.Hour)
		if err != nil || left > c.want || left < c.want-time.Hour {
			t.Errorf("%s: due in %s (%v), want %s", name, left, err, c.want)
		}
	}

	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	if _, err := (&Place{dir: file}).Due(t.Context(), time.Hour); err == nil {
		t.Error("what cannot be listed counts as empty: a backup would be made again and again")
	}
}

func TestRepeat_BeginsWhenDueAndAgainAfterAFailure(t *testing.T) {
	t.Parallel()

	p := folderWith(t)
	synctest.Test(t, func(t *testing.T) {
		p.make(t, time.Now().Add(-23*time.Hour).UTC().Format(nameForm)) // an hour is left
		began, tries := time.Now(), 0
		var said, at []string
		ctx, cancel := context.WithCancel(t.Context())
		p.Repeat(ctx, 24*time.Hour, func(context.Context) error {
			at = append(at, time.Since(began).String())
			tries++
			switch tries {
			case 1, 2:
				return errors.New("Redis is unavailable")
			case 5:
				cancel()
				return ctx.Err()
			}

			p.make(t, time.Now().UTC().Format(nameForm))

			return nil
		}, func(text string) { said = append(said, text) })

		if want := []string{"1h0m0s", "1h10m0s", "1h20m0s", "25h20m0s", "49h20m0s"}; !slices.Equal(at, want) {
			t.Errorf("begun after %v, want %v", at, want)
		}
		if len(said) != 2 || said[0] != "FAILED, and begun again in 10m0s: Redis is unavailable" {
			t.Errorf("said %q", said)
		}
	})
}

// A place that cannot be listed may have a fresh one: none is made until that is known.
func TestRepeat_MakesNothingWhereItCannotLook(t *testing.T) {
	t.Parallel()

	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	(&Place{dir: file}).Repeat(ctx, time.Hour, func(context.Context) error {
		t.Error("one was made")
		cancel()
		return nil
	}, func(string) { cancel() })
}

func TestOpenPlace_NamesWhatIsLacking(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_ENDPOINT_URL": "", "AWS_REGION": ""} {
		t.Setenv(name, value)
		t.Setenv(name+"_FILE", "")
	}

	p, err := OpenPlace("s3://bucket/a/b/")
	if err != nil || p.bucket != "bucket" || p.prefix != "a/b/" {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := OpenPlace("s3://bucket"); err != nil || p.bucket != "bucket" || p.prefix != "" {
		t.Errorf("%+v, %v", p, err)
	}

	for _, at := range []string{"s3://", "s3:///a"} {
		if _, err := OpenPlace(at); err == nil || !strings.Contains(err.Error(), "bucket") {
			t.Errorf("%s: %v", at, err)
		}
	}

	t.Setenv("AWS_ENDPOINT_URL", "http://ho st")
	if _, err := OpenPlace("s3://bucket"); err == nil {
		t.Error("no URL is taken")
	}

	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, err := OpenPlace("s3://bucket"); err == nil || !strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID, or AWS_ACCESS_KEY_ID_FILE") || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
}
