package ledger

import (
	"encoding/binary"
	"errors"
	"hash/crc64"
)

// ErrSnapshot says that an RDB file is none, or not whole.
var ErrSnapshot = errors.New("not a whole RDB file")

// RDBSum judges an RDB file that is written to it: it begins with REDIS, and ends
// with the CRC-64 of all before, as every Redis writes it unless it was told not
// to.
type RDBSum struct {
	first  []byte // of the file, until there are five
	sum    uint64
	behind []byte // the last bytes, at most 8: the sum, if nothing follows
}

const rdbMagic = "REDIS"

// rdbTable is of Redis's own polynomial, ad93d23594c935a9, as this library wants
// it: reversed.
var rdbTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// Write never fails.
func (s *RDBSum) Write(b []byte) (int, error) {
	if missing := len(rdbMagic) - len(s.first); missing > 0 {
		s.first = append(s.first, b[:min(missing, len(b))]...)
	}
	s.behind = append(s.behind, b...)
	if done := len(s.behind) - 8; done > 0 {
		// The library inverts before and after, Redis does not.
		s.sum = ^crc64.Update(^s.sum, rdbTable, s.behind[:done])
		s.behind = append(s.behind[:0], s.behind[done:]...)
	}
	return len(b), nil
}

// Check is nil when what was written is a whole file.
func (s *RDBSum) Check() error {
	if string(s.first) != rdbMagic || len(s.behind) < 8 {
		return ErrSnapshot
	}
	switch binary.LittleEndian.Uint64(s.behind) {
	case s.sum, 0: // 0: rdbchecksum no
		return nil
	}
	return ErrSnapshot
}
