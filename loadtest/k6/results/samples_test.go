package results

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"
)

const sampleLines = `{"type":"Metric","data":{"name":"http_req_duration"},"metric":"http_req_duration"}
{"metric":"stores_registered","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"account":"1"},"metadata":{"store":"loadtest-1"}}}
{"metric":"http_reqs","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"status":"201"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-23T15:06:51.0025Z","value":2.5,"tags":{"account":"1","name":"POST /orders","scenario":"day","status":"201","expected_response":"true"}}}
{"metric":"orders_accepted","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"account":"1"},"metadata":{"order":"o-1","end":"Failed"}}}
{"metric":"dropped_iterations","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":3,"tags":{"scenario":"day"}}}
{"metric":"iterations","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"scenario":"day"}}}
{"metric":"checks","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":0,"tags":{"check":"an order is accepted"}}}
{"metric":"checks","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{"check":"an order is accepted"}}}
{"metric":"refused","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1,"tags":{}}}
{"metric":"resends","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":2,"tags":{"scenario":"day"}}}
{"metric":"waited","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":1500.5,"tags":{}}}
{"metric":"vus","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":4,"tags":{}}}
{"metric":"vus_max","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":9,"tags":{}}}
{"metric":"data_sent","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":100,"tags":{}}}
{"metric":"data_received","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":200,"tags":{}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-23T15:06:52Z","value":0,"tags":{"account":"2","name":"GET /orders/{id}","status":"0","expected_response":"false"}}}
`

func TestReadSamples(t *testing.T) {
	t.Parallel()

	samples, err := readSamples(strings.NewReader(sampleLines))
	if err != nil {
		t.Fatal(err)
	}

	created, unanswered := samples.requests[0], samples.requests[1]
	sent := time.Date(2026, 11, 23, 15, 6, 51, 0, time.UTC)
	if created.sent() != sent.UnixNano() || created.took != 2.5 || created.status != 201 || created.unexpected {
		t.Errorf("the first request is %+v", created)
	}
	names := []string{samples.names[created.endpoint], samples.names[created.account], samples.names[created.scenario]}
	got := strings.Join(names, ",")
	if got != "POST /orders,1,day" {
		t.Errorf("the first request is of %s", got)
	}
	if unanswered.status != 0 || !unanswered.unexpected || unanswered.scenario != 0 {
		t.Errorf("the second request is %+v", unanswered)
	}

	order := samples.orders["1"][0]
	if order.ID != "o-1" || order.End != "Failed" || samples.stores["1"] != 1 {
		t.Errorf("the order is %+v, stores %v", order, samples.stores)
	}
	check := samples.checks["an order is accepted"]
	if check.Passes != 1 || check.Fails != 1 {
		t.Errorf("the check is %+v", check)
	}

	want := Counts{
		Iterations: 1, Dropped: 3, ActiveVUs: 4, AllocatedVUs: 9, OrdersAccepted: 1,
		Refused: 1, Resends: 2, SecondsWaited: 1.5005, BytesSent: 100, BytesReceived: 200,
	}
	if samples.counts != want {
		t.Errorf("counts are %+v, want %+v", samples.counts, want)
	}
	if len(samples.problems) != 0 {
		t.Errorf("problems: %v", samples.problems)
	}
}

// A wrong line in the middle means that something else than k6 wrote the file.
func TestReadSamples_RefusesWrongLines(t *testing.T) {
	t.Parallel()

	for name, change := range map[string][2]string{
		"no time":                {`15:06:51.0025Z`, "soon"},
		"a year without meaning": {`"2026-11-23T15:06:51.0025Z"`, `"0001-01-01T00:00:00Z"`},
		"no value":               {`"value":2.5`, `"value":"long"`},
		"a negative duration":    {`"value":2.5`, `"value":-1`},
		"no status":              {`"status":"201","e`, `"status":"","e`},
		"an order without end":   {`,"end":"Failed"`, ``},
		"half an iteration":      {`"value":1,"tags":{"scenario":"day"}}}`, `"value":0.5,"tags":{"scenario":"day"}}}`},
		"half a line":            {`"vus","type":"Point","data":{"time":"2026-11-23T15:06:51Z","value":4,"tags":{}}}`, `"vus","type`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := strings.Replace(sampleLines, change[0], change[1], 1)
			if lines == sampleLines {
				t.Fatal("nothing was changed")
			}

			_, err := readSamples(strings.NewReader(lines))

			if err == nil || !strings.Contains(err.Error(), "line ") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// k6 may be killed at any byte: what is whole by then is read, and the cut is reported.
func TestReadSamples_ReadsUpToTheCut(t *testing.T) {
	t.Parallel()

	for cut := 1; cut < len(sampleLines); cut++ {
		samples, err := readSamples(strings.NewReader(sampleLines[:cut]))
		if err != nil {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}

		isWhole := strings.HasSuffix(sampleLines[:cut], "\n")
		isReported := len(samples.problems) == 1
		if isWhole == isReported {
			t.Fatalf("cut after %q: problems %v", sampleLines[max(0, cut-20):cut], samples.problems)
		}
	}

	samples, err := readSamples(strings.NewReader(sampleLines[:len(sampleLines)-20]))
	if err != nil || len(samples.requests) != 1 || len(samples.problems) != 1 {
		t.Errorf("%d requests, problems %v, error %v", len(samples.requests), samples.problems, err)
	}
}

func TestReadSampleFiles_ReadsACutOffGzip(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile(filepath.Join("testdata", "ramp.samples.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.json.gz")
	empty := filepath.Join(t.TempDir(), "empty.json.gz")
	writeFile(t, cut, string(whole[:len(whole)/2]))
	writeFile(t, empty, "")

	all, err := readSampleFiles(filepath.Join("testdata", "ramp.samples.json.gz"))
	if err != nil || len(all.problems) != 0 {
		t.Fatalf("problems %v, error %v", all.problems, err)
	}
	part, err := readSampleFiles(cut, empty)
	if err != nil {
		t.Fatal(err)
	}

	if len(part.requests) == 0 || len(part.requests) >= len(all.requests) {
		t.Errorf("%d of %d requests", len(part.requests), len(all.requests))
	}
	got := strings.Join(part.problems, "\n")
	if !strings.Contains(got, "cut off") || !strings.Contains(got, "empty") {
		t.Errorf("problems: %s", got)
	}
	if _, err := readSampleFiles("testdata/absent.json"); err == nil {
		t.Error("a missing file is no error")
	}
}

// Parts of a distributed run are read as one.
func TestReadSampleFiles_MergesParts(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "one.json")
	zipped := filepath.Join(t.TempDir(), "two.json.gz")
	writeFile(t, plain, strings.ReplaceAll(sampleLines, `"account":"1"`, `"account":"7"`))
	writeFile(t, zipped, compress(t, sampleLines))

	samples, err := readSampleFiles(plain, zipped)
	if err != nil {
		t.Fatal(err)
	}

	if len(samples.requests) != 4 || len(samples.orders["1"]) != 1 || len(samples.orders["7"]) != 1 {
		t.Errorf("%d requests, orders %v", len(samples.requests), samples.orders)
	}
	if samples.counts.ActiveVUs != 8 || samples.counts.Dropped != 6 || samples.iterations["day"] != 2 {
		t.Errorf("counts are %+v, iterations %v", samples.counts, samples.iterations)
	}
}

// Hours of load are millions of requests.
func TestRequest_IsSmall(t *testing.T) {
	t.Parallel()

	size := unsafe.Sizeof(request{})
	if size > 32 {
		t.Errorf("a request takes %d bytes", size)
	}
}

func FuzzReadSamples(f *testing.F) {
	f.Add([]byte(sampleLines))
	f.Add([]byte(sampleLines[:700]))
	f.Add([]byte("{}\n{}"))

	f.Fuzz(func(t *testing.T, lines []byte) {
		samples, err := readSamples(bytes.NewReader(lines))
		if err != nil {
			return
		}

		script := &Script{}
		script.fill(samples, Options{})
		script.CollectFailures()
		c := script.Curves
		if c != nil && len(c.Requests) > maxBuckets {
			t.Errorf("%d buckets", len(c.Requests))
		}
		writePageAndJUnit(t, &Run{Scripts: []*Script{script}})
	})
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func compress(t *testing.T, content string) string {
	t.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, err := w.Write([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	return zipped.String()
}
