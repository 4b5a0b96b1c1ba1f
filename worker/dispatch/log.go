package dispatch

import (
	"encoding/binary"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

const (
	// A log gets so many lines at once, or those of a second.
	logLines = 16
	logEvery = time.Second
	// A log keeps the newest logKept lines and what was written together with the last of them,
	// but no more than logBytes.
	logKept, logBytes = 200, 256 << 10
)

// An attemptLog has what is to be added to an endpoint's log of attempts, which vendors and operators read.
type attemptLog struct {
	account delivery.AccountID

	since time.Time // when the first of the lines came
	lines [][]byte

	// replaces: the first of the lines takes the place of the entry before it.
	replaces bool

	// closed are the lines that the next step writes, which may be refused; closedReplaces is replaces of them.
	closed         [][]byte
	closedReplaces bool

	// probe is the newest line, if it is a failed probe's.
	probe []byte

	// written are the log's entries, the newest first, as far as this owner wrote them; isComplete: it has no others.
	written    []chunk
	isComplete bool
}

// chunk is the size of an entry of a log.
type chunk struct{ lines, bytes int }

// add adds a line. Failed probes in a row share one, so that an endpoint that is unavailable for a day keeps the log
// of what went before.
func (l *attemptLog) add(line []byte, isFailedProbe bool) {
	if isFailedProbe && l.probe != nil {
		probes := binary.BigEndian.Uint32(l.probe[1:])
		binary.BigEndian.PutUint32(line[1:], probes+1)
		if n := len(l.lines); n > 0 {
			l.lines = l.lines[:n-1]
		} else {
			l.replaces = true
		}
	}

	l.lines = append(l.lines, line)
	l.probe = nil
	if isFailedProbe {
		l.probe = line
	}
}

// isDue reports whether the lines should be written.
func (l *attemptLog) isDue(now time.Time) bool {
	return len(l.lines) >= logLines || now.Sub(l.since) >= logEvery
}

// close takes lines for the next step; false: some are left for the one after, because a line that probes share is
// written by itself.
func (l *attemptLog) close() bool {
	n := len(l.lines)
	switch {
	case l.replaces:
		n = 1
	case l.probe != nil && n > 1:
		n--
	}

	l.closed, l.lines = newestLines(l.lines[:n:n], l.limit()), l.lines[n:]
	l.closedReplaces, l.replaces = l.replaces, false

	return len(l.lines) == 0
}

// newestLines leaves out the oldest lines that a log would not keep; never the last one.
func newestLines(lines [][]byte, limit int) [][]byte {
	first, sum := len(lines), chunk{}
	for first > 0 {
		line := chunkOf(lines[first-1 : first])
		isFull := sum.lines == logKept || sum.bytes+line.bytes > limit
		if isFull && sum.lines > 0 {
			break
		}
		sum.lines, sum.bytes = sum.lines+line.lines, sum.bytes+line.bytes
		first--
	}

	return lines[first:]
}

// limit returns how many bytes this owner's entries of the log may have. Half of the log is for those of earlier
// owners, whose sizes are unknown, as long as there may be any.
func (l *attemptLog) limit() int {
	if l.isComplete {
		return logBytes
	}
	return logBytes / 2
}

// write adds the closed lines to a step.
func (l *attemptLog) write(step *partitions.Step) {
	if len(l.written) == 0 {
		step.TrimLog(l.account, logBytes-l.limit())
	}
	step.Log(l.account, l.closed, l.entriesKept(), l.closedReplaces)
}

// entriesKept returns how many entries the log keeps, with the one that is being written.
func (l *attemptLog) entriesKept() int {
	sum := chunkOf(l.closed)
	for i, c := range l.written {
		if sum.lines >= logKept || sum.bytes+c.bytes > l.limit() {
			return i + 1
		}
		sum.lines, sum.bytes = sum.lines+c.lines, sum.bytes+c.bytes
	}
	return logKept
}

// lineOverhead is what an entry takes for each of its lines besides the line.
const lineOverhead = 3

func chunkOf(lines [][]byte) (c chunk) {
	for _, line := range lines {
		c.lines, c.bytes = c.lines+1, c.bytes+len(line)+lineOverhead
	}
	return c
}

// commit takes note that the closed lines were written.
func (l *attemptLog) commit() {
	added := chunkOf(l.closed)
	if l.closedReplaces {
		l.written[0] = added
	} else {
		kept, before := l.entriesKept(), len(l.written)
		l.written = append([]chunk{added}, l.written[:min(before, kept-1)]...)
		l.isComplete = l.isComplete || kept <= before+1
	}

	l.closed, l.closedReplaces = nil, false
}
