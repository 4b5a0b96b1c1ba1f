package closing

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/deliver"
)

// bucket is an S3 server in this process.
type bucket struct {
	client *minio.Client
	target *deliver.Target
	url    string // of the target
}

func newBucket(t *testing.T, name string) *bucket {
	t.Helper()
	backend := s3mem.New()
	testenv.Must(t, backend.CreateBucket("books"))
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	variable := "DELIVER_" + strings.ToUpper(name)
	t.Setenv(variable+"_KEY_ID", "id")
	t.Setenv(variable+"_SECRET", "secret")
	b := &bucket{url: "s3://books/finance?endpoint=" + url.QueryEscape(server.URL)}
	var err error
	b.target, err = deliver.Open(deliver.TargetSettings{Name: name, URL: b.url})
	testenv.Must(t, err)
	b.client, err = minio.New(strings.TrimPrefix(server.URL, "http://"), &minio.Options{Creds: credentials.NewStaticV4("id", "secret", "")})
	testenv.Must(t, err)
	return b
}

func (b *bucket) files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for o := range b.client.ListObjectsIter(t.Context(), "books", minio.ListObjectsOptions{Recursive: true}) {
		testenv.Must(t, o.Err)
		object, err := b.client.GetObject(t.Context(), "books", o.Key, minio.GetObjectOptions{})
		testenv.Must(t, err)
		content, err := io.ReadAll(object)
		testenv.Must(t, err)
		files[strings.TrimPrefix(o.Key, "finance/")] = string(content)
	}
	return files
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// A closing, a correction and a day's reports arrive once, and are announced once they are there.
func TestDeliverer_DeliversEachSetOnce(t *testing.T) {
	e, b := newEnv(t), newBucket(t, "erp")
	october := month("2025-10")
	failed := e.order(october.AddDate(0, 0, 5), delivery.Failed, 9900)
	e.store(e.order(october.AddDate(0, 0, 5), delivery.Delivered, 25000), failed)
	e.close(october)
	var told []delivery.AvailableReport
	refuse := errors.New("the gateway does not answer")
	announce := func(_ context.Context, r *delivery.AvailableReport) error {
		if refuse == nil {
			told = append(told, *r)
		}
		return refuse
	}
	d := NewDeliverer(e.books, []*deliver.Target{b.target}, "07:00", announce, prometheus.NewRegistry())
	testenv.Must(t, d.Once(t.Context()))
	if len(told) > 0 {
		t.Errorf("announced: %+v", told)
	}
	refuse = nil
	testenv.Must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Late: []archive.LateDelivery{
		{Account: failed.Account, CreatedAt: failed.CreatedAt, Order: failed.ID, ReportedAt: failed.EndedAt.Add(time.Hour)}}}))
	_, _, err := correct(t.Context(), e.books, Automatic, "")
	testenv.Must(t, err)
	e.clock = e.clock.Add(7 * time.Hour)
	for range 2 {
		testenv.Must(t, d.Once(t.Context()))
	}
	files := b.files(t)
	l, err := e.books.Read(t.Context())
	testenv.Must(t, err)
	for i, folder := range map[int]string{1: "2025-10-closing-000002", 2: "2025-11-correction-000003"} {
		if manifest := files[folder+"/manifest.json"]; sumOf(manifest) != l.Entries[i].Seal {
			t.Errorf("the manifest in %s is not what was sealed: %q", folder, manifest)
		}
	}
	wantContains(t, "the manifest of the correction", files["2025-11-correction-000003/manifest.json"], `"order":"`+failed.ID.String()+`"`)
	for _, line := range l.Entries[1].Control {
		if line.SHA256 != "" && sumOf(files["2025-10-closing-000002/"+line.Line+".csv"]) != line.SHA256 {
			t.Errorf("%s is not what was sealed", line.Line)
		}
	}
	wantContains(t, "the corrections", files["2025-11-correction-000003/corrections.csv"], failed.ID.String()+",", ",2025-10,2025-11-03,late delivery,Failed,Failed,0.00,99.00,")
	if _, there := files["2025-11-02-daily/manifest.json"]; !there || len(files) != 5+2+5 {
		t.Errorf("%d files", len(files))
	}
	var ids []string
	for _, r := range told {
		ids = append(ids, r.ID)
	}
	if strings.Join(ids, " ") != "2025-10-closing-000002@erp 2025-11-correction-000003@erp 2025-11-02-daily@erp" {
		t.Errorf("announced: %v", ids)
	}
	wrong, err := e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target})
	testenv.Must(t, err)
	if len(wrong) > 0 {
		t.Error(wrong)
	}
	_, err = b.client.PutObject(t.Context(), "books", "finance/2025-10-closing-000002/order-ledger.csv", bytes.NewReader([]byte("x")), 1, minio.PutObjectOptions{})
	testenv.Must(t, err)
	if wrong, err = e.books.CheckDelivered(t.Context(), []*deliver.Target{b.target}); err != nil || len(wrong) != 1 || !strings.Contains(wrong[0], "order-ledger.csv") {
		t.Error(wrong, err)
	}
}

// Without a target a closing is announced all the same.
func TestDeliverer_AnnouncesWithoutTargets(t *testing.T) {
	t.Parallel()
	e, october := newEnv(t), month("2025-10")
	e.store(e.order(october.AddDate(0, 0, 5), delivery.Delivered, 25000))
	e.close(october)
	var told []string
	d := NewDeliverer(e.books, nil, "07:00", func(_ context.Context, r *delivery.AvailableReport) error {
		told = append(told, r.ID)
		return nil
	}, prometheus.NewRegistry())
	for range 2 {
		testenv.Must(t, d.Once(t.Context()))
	}
	if strings.Join(told, " ") != "2025-10-closing-000002" {
		t.Errorf("announced: %v", told)
	}
}

// A day's set that was cut off, and whose orders have changed since, stays as it is; another folder has what is true now.
func TestDeliverer_BeginsADailySetAnew(t *testing.T) {
	e, b := newEnv(t), newBucket(t, "daily")
	day := month("2025-11").AddDate(0, 0, 1)
	e.store(e.order(day.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(month("2025-10"))
	e.clock = day.Add(32 * time.Hour) // the morning after
	const cutOff = "half of what it was"
	_, err := b.client.PutObject(t.Context(), "books", "finance/2025-11-02-daily/order-ledger.csv", strings.NewReader(cutOff), int64(len(cutOff)), minio.PutObjectOptions{})
	testenv.Must(t, err)
	var told []delivery.AvailableReport
	d := NewDeliverer(e.books, []*deliver.Target{b.target}, "07:00", func(_ context.Context, r *delivery.AvailableReport) error {
		told = append(told, *r)
		return nil
	}, prometheus.NewRegistry())
	for range 2 {
		testenv.Must(t, d.Once(t.Context()))
	}
	files := b.files(t)
	if _, whole := files["2025-11-02-daily/manifest.json"]; whole || files["2025-11-02-daily/order-ledger.csv"] != cutOff || len(files) != 5+1+5 {
		t.Errorf("%d files, the folder that was begun is whole: %v", len(files), whole)
	}
	wantContains(t, "the ledger", files["2025-11-02-daily-2/order-ledger.csv"], ",moda,", ",250.00,")
	last := told[len(told)-1]
	if len(told) != 2 || last.Kind != delivery.ReportScheduled || len(last.Files) != 5 || last.Files[4].Name != "2025-11-02-daily-2/manifest.json" ||
		last.Files[4].SHA256 != sumOf(files["2025-11-02-daily-2/manifest.json"]) {
		t.Errorf("announced: %+v", told)
	}
}
