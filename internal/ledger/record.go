package ledger

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// recordFormat is the first byte of every stored record. A release reads its
// own format and the neighbouring ones; the number is raised only once every
// process reads the new one.
const recordFormat = 1

var errShortRecord = errors.New("the record ends early")

// Records are sequences of fields in a fixed order: numbers as varints, text
// with its length in front, times in milliseconds with 0 for none.

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(b, uint64(millis(t)))
}

func appendFloat(b []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(b, math.Float64bits(f))
}

// millis is the stored form of a time; 0 is the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// timeOf is the inverse of millis.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// fields reads what the append functions wrote. After a short record every
// further read gives zero values and err stays set.
type fields struct {
	rest string
	err  error
}

func (f *fields) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		if len(f.rest) == 0 {
			f.err = errShortRecord
			return 0
		}
		b := f.rest[0]
		f.rest = f.rest[1:]
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	f.err = errShortRecord
	return 0
}

func (f *fields) take(n int) string {
	if n < 0 || n > len(f.rest) {
		f.err = errShortRecord
		f.rest = ""
		return ""
	}
	taken := f.rest[:n]
	f.rest = f.rest[n:]
	return taken
}

func (f *fields) text() string {
	n := f.uvarint()
	if n > uint64(len(f.rest)) {
		f.err = errShortRecord
		return ""
	}
	return f.take(int(n))
}

func (f *fields) time() time.Time { return timeOf(int64(f.uvarint())) }

func (f *fields) byte() byte {
	if b := f.take(1); b != "" {
		return b[0]
	}
	return 0
}

func (f *fields) uint16() uint16 {
	b := f.take(2)
	if len(b) < 2 {
		return 0
	}
	return uint16(b[0])<<8 | uint16(b[1])
}

func (f *fields) uint32() uint32 { return uint32(f.uint16())<<16 | uint32(f.uint16()) }

func (f *fields) uint64() uint64 { return uint64(f.uint32())<<32 | uint64(f.uint32()) }

func (f *fields) float() float64 { return math.Float64frombits(f.uint64()) }
