package history

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine bounds one line of a file; an operation takes some 500 bytes.
const maxLine = 1 << 20

// Digest is a short name of some bytes: 16 hex digits of their SHA-256. Two
// that differ have the same digest once in 10^19.
func Digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// Encode writes one JSON object a line.
func Encode(w io.Writer, ops []Op) error {
	buffered := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffered)
	for i := range ops {
		if err := encoder.Encode(&ops[i]); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return buffered.Flush()
}

// Decode is the inverse of Encode. A line that is no operation is an error: a
// history that lacks some is worse than none. Times come back without their
// monotonic part, as exact as they were.
func Decode(r io.Reader) ([]Op, error) {
	var ops []Op
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		var op Op
		if err := decoder.Decode(&op); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("line %d: more than one object", n)
		}
		if err := op.check(); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		ops = append(ops, op)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading a history: %w", err)
	}
	return ops, nil
}

func (o *Op) check() error {
	switch {
	case o.Kind != Create && o.Kind != Cancel && o.Kind != Read:
		return fmt.Errorf("kind %q", o.Kind)
	case o.Account == "":
		return errors.New("no account")
	case o.Start.IsZero() || o.End.Before(o.Start):
		return errors.New("it ends before it starts")
	case o.Kind != Create && o.Order == "":
		return fmt.Errorf("a %s of no order", o.Kind)
	}
	return nil
}

// WriteFile writes the operations to a new file; one that exists is replaced.
func WriteFile(path string, ops []Op) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a history: %w", err)
	}
	return errors.Join(Encode(file, ops), file.Close())
}

// ReadFile reads what WriteFile wrote.
func ReadFile(path string) ([]Op, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading a history: %w", err)
	}
	defer file.Close()
	ops, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ops, nil
}
