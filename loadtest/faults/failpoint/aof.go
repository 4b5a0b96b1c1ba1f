package failpoint

import (
	"errors"
	"fmt"
	"os"

	"vendorapi/internal/stack"
)

// Position is an end of the append-only file of a Redis.
type Position struct {
	path string
	size int64
}

// EndOf is the present end of the file of a Redis in dir.
func EndOf(dir string) (Position, error) {
	path, err := stack.NewestAOF(dir)
	if err != nil {
		return Position{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Position{}, fmt.Errorf("append-only file: %w", err)
	}
	return Position{path, info.Size()}, nil
}

// CutSince removes a part of what a Redis that has ended wrote after the position, as a power failure does. draw says
// how many of the bytes go. Both results are 0 when the server has begun another file since.
func (p Position) CutSince(dir string, draw func(int64) int64) (cut, of int64, err error) {
	now, err := EndOf(dir)
	if err != nil || now.path != p.path || now.size <= p.size {
		return 0, 0, err
	}
	of = now.size - p.size
	cut = draw(of)
	return cut, of, os.Truncate(p.path, now.size-cut)
}

// transaction is the effect of a script as the server writes it.
const transaction = "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$11\r\nfaults:torn\r\n$4\r\nhalf\r\n*1\r\n$4\r\nEXEC\r\n"

// TearTail appends the first n bytes of a transaction (modulo its length, never all) to the file of a Redis that has
// ended, as a crash in the middle of a write does.
func TearTail(dir string, n int) error {
	path, err := stack.NewestAOF(dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(transaction[:1+n%(len(transaction)-1)])
	return errors.Join(err, file.Close())
}
