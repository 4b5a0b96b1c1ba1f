package results

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strconv"
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
		"a year far ahead":       {`"2026-11-23T15:06:51.0025Z"`, `"2201-01-01T00:00:00Z"`},
		"no value":               {`"value":2.5`, `"value":"long"`},
		"a negative duration":    {`"value":2.5`, `"value":-1`},
		"a duration of a month":  {`"value":2.5`, `"value":2592000001`},
		"no status":              {`"status":"201","e`, `"status":"","e`},
		"an order without end":   {`,"end":"Failed"`, ``},
		"half an iteration":      {`"value":1,"tags":{"scenario":"day"}}}`, `"value":0.5,"tags":{"scenario":"day"}}}`},
		"too many iterations":    {`"value":1,"tags":{"scenario":"day"}}}`, `"value":1e16,"tags":{"scenario":"day"}}}`},
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

// The most virtual users count, not the last.
func TestReadSamples_KeepsTheMostVirtualUsers(t *testing.T) {
	t.Parallel()

	later := `{"metric":"vus","type":"Point","data":{"time":"2026-11-23T15:06:53Z","value":2,"tags":{}}}
{"metric":"vus_max","type":"Point","data":{"time":"2026-11-23T15:06:53Z","value":3,"tags":{}}}
`

	samples, err := readSamples(strings.NewReader(sampleLines + later))
	if err != nil {
		t.Fatal(err)
	}

	if samples.counts.ActiveVUs != 4 || samples.counts.AllocatedVUs != 9 {
		t.Errorf("counts are %+v", samples.counts)
	}
}

// A line may be long, but not without end.
func TestReadSamples_BoundsTheLengthOfALine(t *testing.T) {
	t.Parallel()

	longLine := func(length int) string { return strings.Repeat("x", length) + "\n" + sampleLines }

	samples, err := readSamples(strings.NewReader(longLine(1_000_000)))
	if err != nil || len(samples.requests) != 2 {
		t.Errorf("a long line: %v", err)
	}
	_, err = readSamples(strings.NewReader(longLine(2_000_000)))
	if !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("a line that is too long: the error is %v", err)
	}
}

// Indices have 16 bits: a name more would be taken for another one.
func TestSampleSet_BoundsTheNumberOfNames(t *testing.T) {
	t.Parallel()

	samples := newSamples()

	for i := range 65_535 { // the first name is empty
		index, err := samples.index(strconv.Itoa(i))
		if err != nil || int(index) != i+1 {
			t.Fatalf("name %d has index %d, error %v", i, index, err)
		}
	}

	if _, err := samples.index("one more"); err == nil {
		t.Error("there is room for one more")
	}

	index, err := samples.index("65534")
	if err != nil || index != 65_535 {
		t.Errorf("the last name has index %d, error %v", index, err)
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
	corrupt := filepath.Join(t.TempDir(), "corrupt.json.gz")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(sampleLines)); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}

	writeFile(t, corrupt, zipped.String()+"\xff\xff\xff") // no block begins like this

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

	broken, err := readSampleFiles(corrupt)
	if err != nil {
		t.Fatal(err)
	}

	if len(broken.requests) != 2 || len(broken.problems) != 1 {
		t.Errorf("a file with a corrupt end: %d requests, problems %v", len(broken.requests), broken.problems)
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
	if samples.counts.ActiveVUs != 8 || samples.counts.AllocatedVUs != 18 || samples.counts.Dropped != 6 || samples.iterations["day"] != 2 || samples.resends["day"] != 4 {
		t.Errorf("counts are %+v, iterations %v, resends %v", samples.counts, samples.iterations, samples.resends)
	}
}

// k6 writes a request when it is answered, and the parts one after the other: the first line is not
// of the request that was sent first.
func TestSampleSet_Span(t *testing.T) {
	t.Parallel()

	samples := newSamples()
	samples.requests = []request{
		{answered: start.Add(3 * time.Second).UnixNano(), took: 1000, scenario: 1},
		{answered: start.Add(9 * time.Second).UnixNano(), took: 8000, scenario: 1},
		{answered: start.Add(5 * time.Second).UnixNano(), took: 1000, scenario: 1},
		{answered: start.Add(60 * time.Second).UnixNano(), took: 60_000, scenario: 0}, // of teardown()
	}

	from, to := samples.span()

	if !from.Equal(start.Add(time.Second)) || !to.Equal(start.Add(9*time.Second)) {
		t.Errorf("from %v to %v", from, to)
	}
}

// A part in which k6 did nothing is whole.
func TestReadSamples_OfAnEmptyFile(t *testing.T) {
	t.Parallel()

	samples, err := readSamples(strings.NewReader(""))

	if err != nil || len(samples.problems) != 0 {
		t.Errorf("problems %v, error %v", samples.problems, err)
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
