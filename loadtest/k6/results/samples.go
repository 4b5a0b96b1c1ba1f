package results

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The endpoints that are treated specially, by the names that the scripts give to them.
const (
	createOrder = "POST /orders"

	// emptyPath is a path that no route takes: the service answers 404 without asking Redis.
	// The scripts request it now and then, so its latency is what the machine, k6 and the
	// network take in the same run. It is no request of the API.
	emptyPath = "GET empty path"

	// ceilingPath is the same path, to which ramp.js sends orders as fast as k6 can, to find k6's own
	// ceiling. Its latency and rate say nothing of the run.
	ceilingPath = "POST empty path"
)

// isEmptyPath reports whether requests of this name are answered without the service's own work.
func isEmptyPath(endpoint string) bool { return endpoint == emptyPath || endpoint == ceilingPath }

// A sampleSet is what k6 measured in one run, or in several parts of one run.
type sampleSet struct {
	requests []request
	drops    []drop

	orders map[string][]Order // by account label
	stores map[string]int     // by account label
	checks map[string]*Check  // by name
	counts Counts

	iterations map[string]int // by scenario
	resends    map[string]int // by scenario

	// names holds the names of endpoints, accounts and scenarios, and how orders end. Requests
	// refer to them by index, so that millions of requests fit into memory. The first name is
	// empty.
	names   []string
	indexOf map[string]uint16

	// contents are those of the files that were read.
	contents contents

	// problems say what is wrong with the files, such as a last line that is cut off.
	problems []string
}

// request is one HTTP request.
type request struct {
	// answered is in nanoseconds since 1970. Without an answer it is the moment at which k6 gave up.
	answered int64

	// took is in milliseconds, exactly as k6 has it.
	took float64

	endpoint, account, scenario uint16 // indices into sampleSet.names

	// status is 0 if there was no answer.
	status int16

	// unexpected reports that there was no answer, or a 5xx that the script had not asked for.
	unexpected bool
}

// drop is a number of iterations that k6 could not start in time.
type drop struct {
	at       int64 // nanoseconds since 1970
	count    int
	scenario uint16 // index into sampleSet.names
}

// Order is an order that was accepted, and how it has to end.
type Order struct {
	ID  string
	End string // the status that it has to end in, as the script intends

	at int64 // when it was accepted, in nanoseconds since 1970
}

// sent returns when the request was sent, in nanoseconds since 1970.
func (r *request) sent() int64 { return r.answered - int64(r.took*float64(time.Millisecond)) }

// refused reports whether a limit refused the request.
func (r *request) refused() bool { return r.status == 429 }

// admitted reports whether the limits certainly counted the request: they count what is
// answered with a decision. Whether a request whose answer was lost, or was a 5xx, was counted
// cannot be known from outside.
func (r *request) admitted() bool {
	switch r.status {
	case 400, 404, 409, 422, 423:
		return true
	default:
		return isSuccess(int(r.status))
	}
}

// newSamples returns a set without samples.
func newSamples() *sampleSet {
	return &sampleSet{
		orders:     map[string][]Order{},
		stores:     map[string]int{},
		checks:     map[string]*Check{},
		iterations: map[string]int{},
		resends:    map[string]int{},
		names:      []string{""},
		indexOf:    map[string]uint16{"": 0},
		contents:   contents{},
	}
}

// readFile adds one file, which is decompressed if its name ends in .gz. An empty compressed file, and
// one with the content of another, becomes a problem. For other errors see read.
//
// The files of a distributed run (k6's execution segments) are added one after the other. The
// clocks of the machines that wrote them have to agree.
func (s *sampleSet) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()

	name := filepath.Base(path)
	if !strings.HasSuffix(path, ".gz") {
		return s.readOnce(file, name)
	}

	unzipped, err := gzip.NewReader(bufio.NewReader(file))
	if isCutOff(err) {
		s.problems = append(s.problems, fmt.Sprintf("k6's %s is empty", name))
		return nil
	}

	if err != nil {
		return err
	}

	return s.readOnce(unzipped, name)
}

// readOnce adds the lines of one part like read. It becomes a problem if they have been read before.
func (s *sampleSet) readOnce(r io.Reader, name string) error {
	hash := sha256.New()
	if err := s.read(io.TeeReader(r, hash), name); err != nil {
		return err
	}

	duplicate := s.contents.add(contentSum(hash.Sum(nil)), name)
	if duplicate != "" {
		s.problems = append(s.problems, duplicate)
	}

	return nil
}

// isCutOff reports whether an error means that a file ended too early.
func isCutOff(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &corrupt)
}

// read adds the lines of one part, as `k6 run --out json=…` writes them. The name is for problems.
//
// A part that ends in the middle, because k6 was killed, is read as far as it is whole, and this
// becomes a problem. A line that is wrong elsewhere is an error; the set then holds some of the
// part's lines.
func (s *sampleSet) read(r io.Reader, name string) error {
	part := partReader{samples: s}
	ending := &endingReader{reader: r}
	lines := bufio.NewScanner(ending)
	lines.Buffer(nil, 1<<20)

	// A line that cannot be read is a fault unless it is the last one: then k6 was killed.
	number := 0
	var unreadable error
	for lines.Scan() {
		if unreadable != nil {
			return unreadable
		}

		number++
		if err := part.addLine(lines.Bytes()); err != nil {
			unreadable = fmt.Errorf("line %d: %w", number, err)
		}
	}

	err := lines.Err()
	if err != nil && !isCutOff(err) {
		return err
	}

	endsWithLine := ending.last == '\n' || number == 0
	isWhole := err == nil && unreadable == nil && endsWithLine
	if !isWhole {
		s.problems = append(s.problems, fmt.Sprintf("k6's %s is cut off in line %d: what is whole was read", name, number))
	}

	// The parts run at the same time, so the virtual users of each add up.
	s.counts.ActiveVUs += part.activeVUs
	s.counts.AllocatedVUs += part.allocatedVUs

	return nil
}

// endingReader remembers the last byte that was read: k6 ends every line, the last one included.
type endingReader struct {
	reader io.Reader
	last   byte
}

// Read reads from the underlying reader and remembers the last byte of what it returned.
func (e *endingReader) Read(buffer []byte) (int, error) {
	n, err := e.reader.Read(buffer)
	if n > 0 {
		e.last = buffer[n-1]
	}

	return n, err
}

// partReader adds the lines of one part of a run.
type partReader struct {
	samples *sampleSet

	// The most virtual users that were active, and that k6 had allocated, at any moment.
	activeVUs, allocatedVUs int
}

// point is a line of k6's JSON output.
type point struct {
	Data pointData `json:"data"`
}

// pointData is what a line measured, with the tags and metadata that are used here.
type pointData struct {
	Time  time.Time `json:"time"`
	Value float64   `json:"value"`

	Tags struct {
		Name     string `json:"name"` // of the endpoint
		Account  string `json:"account"`
		Scenario string `json:"scenario"`
		Status   string `json:"status"`
		Check    string `json:"check"`

		ExpectedResponse string `json:"expected_response"` // "true" or "false"
	} `json:"tags"`

	Metadata struct {
		Order string `json:"order"`
		End   string `json:"end"`
	} `json:"metadata"`
}

// addLine adds a line. Most lines are of metrics that are not used here; these are recognised
// by their beginning and not decoded.
func (p *partReader) addLine(line []byte) error {
	beginning, isPoint := bytes.CutPrefix(line, []byte(`{"metric":"`))
	if !isPoint {
		return nil // the declaration of a metric
	}

	name, _, _ := bytes.Cut(beginning, []byte(`"`))
	metric := string(name)
	if !slices.Contains(usedMetrics, metric) {
		return nil
	}

	var decoded point
	if err := json.Unmarshal(line, &decoded); err != nil {
		return fmt.Errorf("%s: %w", metric, err)
	}

	year := decoded.Data.Time.Year()
	if year < 2000 || year > 2200 {
		return fmt.Errorf("%s: the year is %d", metric, year)
	}

	if err := p.addPoint(metric, &decoded.Data); err != nil {
		return fmt.Errorf("%s: %w", metric, err)
	}

	return nil
}

// usedMetrics are the metrics that addPoint knows, the most frequent first.
var usedMetrics = []string{
	"http_req_duration", "checks", "orders_accepted", "data_sent", "data_received", "iterations", "waited",
	"refused", "resends", "dropped_iterations", "vus", "vus_max", "stores_registered",
}

// addPoint adds a point of one of the used metrics.
func (p *partReader) addPoint(metric string, data *pointData) error {
	s := p.samples

	switch metric {
	case "http_req_duration":
		return s.addRequest(data)
	case "orders_accepted":
		return s.addOrder(data)
	case "checks":
		s.addCheck(data)
		return nil
	case "stores_registered":
		s.stores[data.Tags.Account]++
		return nil
	case "waited":
		s.counts.SecondsWaited += data.Value / 1000
		return nil
	}

	counted, err := countOf(data)
	if err != nil {
		return err
	}

	scenario := data.Tags.Scenario
	switch metric {
	case "iterations":
		s.iterations[scenario] += counted
		s.counts.Iterations += counted
	case "dropped_iterations":
		return s.addDrop(data, counted)
	case "refused":
		s.counts.Refused += counted
	case "resends":
		s.resends[scenario] += counted
		s.counts.Resends += counted
	case "data_sent":
		s.counts.BytesSent += int64(counted)
	case "data_received":
		s.counts.BytesReceived += int64(counted)
	case "vus":
		p.activeVUs = max(p.activeVUs, counted)
	case "vus_max":
		p.allocatedVUs = max(p.allocatedVUs, counted)
	}

	return nil
}

// maxDuration is longer than any request can take.
const maxDuration = 30 * 24 * time.Hour

func (s *sampleSet) addRequest(data *pointData) error {
	status, err := strconv.ParseInt(data.Tags.Status, 10, 16)
	if err != nil {
		return fmt.Errorf("status %q is no number", data.Tags.Status)
	}

	isDuration := data.Value >= 0 && data.Value <= float64(maxDuration/time.Millisecond)
	if !isDuration {
		return fmt.Errorf("a duration of %g ms", data.Value)
	}

	endpoint, err := s.index(data.Tags.Name)
	if err != nil {
		return err
	}
	account, err := s.index(data.Tags.Account)
	if err != nil {
		return err
	}
	scenario, err := s.index(data.Tags.Scenario)
	if err != nil {
		return err
	}

	s.requests = append(s.requests, request{
		answered:   data.Time.UnixNano(),
		took:       data.Value,
		endpoint:   endpoint,
		account:    account,
		scenario:   scenario,
		status:     int16(status),
		unexpected: data.Tags.ExpectedResponse == "false",
	})

	return nil
}

func (s *sampleSet) addOrder(data *pointData) error {
	if data.Metadata.Order == "" || data.Metadata.End == "" {
		return errors.New("an accepted order without id or end")
	}

	// The few statuses are stored once and not for each order.
	end, err := s.index(data.Metadata.End)
	if err != nil {
		return err
	}

	account := data.Tags.Account
	s.orders[account] = append(s.orders[account], Order{
		ID:  data.Metadata.Order,
		End: s.names[end],
		at:  data.Time.UnixNano(),
	})

	s.counts.OrdersAccepted++

	return nil
}

func (s *sampleSet) addDrop(data *pointData, dropped int) error {
	scenario, err := s.index(data.Tags.Scenario)
	if err != nil {
		return err
	}

	s.drops = append(s.drops, drop{at: data.Time.UnixNano(), count: dropped, scenario: scenario})
	s.counts.Dropped += dropped

	return nil
}

func (s *sampleSet) addCheck(data *pointData) {
	name := data.Tags.Check
	check := s.checks[name]
	if check == nil {
		check = &Check{Name: name}
		s.checks[name] = check
	}

	if data.Value == 0 {
		check.Fails++
	} else {
		check.Passes++
	}
}

// maxCount is more than anything that k6 counts, bytes included.
const maxCount = 1 << 50

// countOf returns the value of a counter's or a gauge's point.
func countOf(data *pointData) (int, error) {
	value := data.Value
	isCount := value >= 0 && value <= maxCount && value == math.Trunc(value)
	if !isCount {
		return 0, fmt.Errorf("%g is no count", value)
	}

	return int(value), nil
}

// index returns the index of a name in names, which is added if it is new. There is room for 65,536
// names, and an error says that there are more: then a script has put an id into a name.
func (s *sampleSet) index(name string) (uint16, error) {
	existing, found := s.indexOf[name]
	if found {
		return existing, nil
	}

	if len(s.names) > math.MaxUint16 {
		return 0, errors.New("too many different names of endpoints, accounts or scenarios")
	}

	added := uint16(len(s.names))
	s.names = append(s.names, name)
	s.indexOf[name] = added

	return added, nil
}

// hasScenarios reports whether any request belongs to a scenario. Those of setup() and
// teardown() belong to none.
func (s *sampleSet) hasScenarios() bool {
	return slices.ContainsFunc(s.requests, func(r request) bool { return r.scenario != 0 })
}

// span returns when the first request of a scenario was sent and the last one was answered, in
// UTC. If no scenario sent anything, the requests of setup() and teardown() count instead. Without
// any request both times are zero.
func (s *sampleSet) span() (from, to time.Time) {
	hasScenarios := s.hasScenarios()

	var first, last int64
	for i := range s.requests {
		r := &s.requests[i]
		if hasScenarios && r.scenario == 0 {
			continue
		}

		if first == 0 || r.sent() < first {
			first = r.sent()
		}

		last = max(last, r.answered)
	}

	if first == 0 {
		return time.Time{}, time.Time{}
	}

	return time.Unix(0, first).UTC(), time.Unix(0, last).UTC()
}
