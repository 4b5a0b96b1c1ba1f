package results

import "time"

// maxBuckets is how many points a curve has at most.
const maxBuckets = 120

// bucketLengths are the lengths of a curve's buckets, in seconds; beyond the last one, its
// multiples are used.
var bucketLengths = []int{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600}

// maxBucketSeconds is longer than any bucket: samples of two centuries, which is what addLine
// allows, fit into maxBuckets of them.
const maxBucketSeconds = 2 * 365 * 24 * 3600

// Curves are what was measured over the time of a script, in buckets of equal length. All
// lists have one element for each bucket. Rates are per second; the last bucket is usually not
// full, so its rates are lower.
type Curves struct {
	Began         time.Time `json:"began"`
	BucketSeconds int       `json:"bucket_seconds"`

	Requests []float64 `json:"requests"` // without those to the empty path
	Accepted []float64 `json:"accepted"` // orders
	Dropped  []float64 `json:"dropped"`  // iterations that k6 could not start in time
	Failed   []float64 `json:"failed"`   // requests without an answer, or with an unexpected 5xx
	Refused  []float64 `json:"refused"`  // answers 429

	// Latencies are null in a bucket without such an answer.
	P50      []*Latency `json:"p50_ms"`       // of POST /orders, answered 201
	P99      []*Latency `json:"p99_ms"`       // of POST /orders, answered 201
	EmptyP99 []*Latency `json:"empty_p99_ms"` // of the empty path, answered
}

// isValid reports whether all curves have the same number of buckets, of a possible length.
func (c *Curves) isValid() bool {
	buckets := len(c.Requests)
	for _, curve := range [][]float64{c.Accepted, c.Dropped, c.Failed, c.Refused} {
		if len(curve) != buckets {
			return false
		}
	}

	for _, curve := range [][]*Latency{c.P50, c.P99, c.EmptyP99} {
		if len(curve) != buckets {
			return false
		}
	}

	hasLength := c.BucketSeconds > 0 && c.BucketSeconds <= maxBucketSeconds

	return buckets <= maxBuckets && hasLength
}

// curvesOf returns the curves over the time of the scenarios; nil if nothing was requested.
func curvesOf(s *sampleSet) *Curves {
	from, to := s.span()
	if from.IsZero() {
		return nil
	}

	seconds := int(to.Sub(from)/time.Second) + 1
	length := bucketLength(seconds)
	buckets := (seconds + length - 1) / length
	b := &curveBuilder{
		from:    from.UnixNano(),
		bucket:  int64(length) * int64(time.Second),
		curves:  newCurves(from, length, buckets),
		created: make([][]float64, buckets),
		empty:   make([][]float64, buckets),
	}

	for i := range s.requests {
		b.addRequest(s, &s.requests[i])
	}

	for _, orders := range s.orders {
		for i := range orders {
			b.add(b.curves.Accepted, orders[i].at, 1)
		}
	}

	for _, d := range s.drops {
		b.add(b.curves.Dropped, d.at, d.count)
	}

	b.finish()

	return b.curves
}

// newCurves returns curves without any value. length is that of a bucket, in seconds.
func newCurves(began time.Time, length, buckets int) *Curves {
	return &Curves{
		Began:         began,
		BucketSeconds: length,

		Requests: make([]float64, buckets),
		Accepted: make([]float64, buckets),
		Dropped:  make([]float64, buckets),
		Failed:   make([]float64, buckets),
		Refused:  make([]float64, buckets),

		P50:      make([]*Latency, buckets),
		P99:      make([]*Latency, buckets),
		EmptyP99: make([]*Latency, buckets),
	}
}

// bucketLength returns the smallest length with which the seconds need no more than maxBuckets.
func bucketLength(seconds int) int {
	for _, length := range bucketLengths {
		if seconds <= length*maxBuckets {
			return length
		}
	}

	longest := bucketLengths[len(bucketLengths)-1]
	multiple := (seconds + longest*maxBuckets - 1) / (longest * maxBuckets)

	return multiple * longest
}

// curveBuilder sorts samples into buckets.
type curveBuilder struct {
	from   int64 // where the first bucket begins, in nanoseconds since 1970
	bucket int64 // length, in nanoseconds

	curves *Curves

	// Latencies in milliseconds, by bucket: of POST /orders answered 201, and of the answers from the
	// empty path.
	created, empty [][]float64
}

// bucketOf returns the index of a moment's bucket; false if the moment lies outside the curves. The
// moment is in nanoseconds since 1970.
func (b *curveBuilder) bucketOf(moment int64) (i int, inside bool) {
	if moment < b.from {
		return 0, false
	}

	i = int((moment - b.from) / b.bucket)

	return i, i < len(b.created)
}

// add adds a count to a curve. What lies outside the curves is left out.
func (b *curveBuilder) add(curve []float64, moment int64, count int) {
	i, inside := b.bucketOf(moment)
	if inside {
		curve[i] += float64(count)
	}
}

// addRequest adds a request to the bucket in which it was answered.
func (b *curveBuilder) addRequest(s *sampleSet, r *request) {
	i, inside := b.bucketOf(r.answered)
	if !inside {
		return
	}

	endpoint := s.names[r.endpoint]
	if endpoint == emptyPath && r.status != 0 {
		b.empty[i] = append(b.empty[i], r.took)
	}

	if isEmptyPath(endpoint) {
		return
	}

	b.curves.Requests[i]++
	if r.unexpected {
		b.curves.Failed[i]++
	}

	if r.refused() {
		b.curves.Refused[i]++
	}

	if endpoint == createOrder && r.status == 201 {
		b.created[i] = append(b.created[i], r.took)
	}
}

// finish turns counts into rates, and latencies into percentiles.
func (b *curveBuilder) finish() {
	c := b.curves
	for _, curve := range [][]float64{c.Requests, c.Accepted, c.Dropped, c.Failed, c.Refused} {
		for i := range curve {
			curve[i] /= float64(c.BucketSeconds)
		}
	}

	for i := range b.created {
		if len(b.created[i]) > 0 {
			created := percentilesOf(b.created[i])
			c.P50[i] = &created.P50
			c.P99[i] = &created.P99
		}

		if len(b.empty[i]) > 0 {
			empty := percentilesOf(b.empty[i])
			c.EmptyP99[i] = &empty.P99
		}
	}
}
