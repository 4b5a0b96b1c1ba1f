package inject

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AOF is the file to which a Redis in dir appends now.
func AOF(dir string) (string, error) {
	folder := filepath.Join(dir, "appendonlydir")
	manifest, err := os.Open(filepath.Join(folder, "appendonly.aof.manifest"))
	if err != nil {
		return "", fmt.Errorf("append-only file: %w", err)
	}
	defer manifest.Close()
	name := ""
	for lines := bufio.NewScanner(manifest); lines.Scan(); {
		// file appendonly.aof.3.incr.aof seq 3 type i
		fields := strings.Fields(lines.Text())
		if len(fields) >= 6 && fields[5] == "i" {
			name = fields[1]
		}
	}
	if name == "" {
		return "", errors.New("append-only file: the manifest names none")
	}
	return filepath.Join(folder, name), nil
}

// Tail is a place in an append-only file.
type Tail struct {
	path string
	size int64
}

// EndOf is the end of the file of a Redis in dir as it is now.
func EndOf(dir string) (Tail, error) {
	path, err := AOF(dir)
	if err != nil {
		return Tail{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Tail{}, fmt.Errorf("append-only file: %w", err)
	}
	return Tail{path, info.Size()}, nil
}

// CutSince takes a part of what was written since then off the file of a Redis
// that does not run, as a power cut does with what was not yet synced: draw is
// told how many bytes may go and says how many do. It returns both. Nothing goes
// when the server has begun another file since.
func (t Tail) CutSince(dir string, draw func(int64) int64) (cut, of int64, err error) {
	now, err := EndOf(dir)
	if err != nil || now.path != t.path || now.size <= t.size {
		return 0, 0, err
	}
	of = now.size - t.size
	cut = draw(of)
	if err := os.Truncate(t.path, now.size-cut); err != nil {
		return 0, of, fmt.Errorf("append-only file: %w", err)
	}
	return cut, of, nil
}

// torn is a transaction as the server writes a script's effects. Its end never
// got to the disk.
const torn = "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$11\r\nfaults:torn\r\n$4\r\nhalf\r\n*1\r\n$4\r\nEXEC\r\n"

// TearTail appends the first n bytes of a transaction (modulo its length, at
// least one, never all) to the file of a Redis that does not run, as a crash in
// the middle of a write does.
func TearTail(dir string, n int) error {
	path, err := AOF(dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("append-only file: %w", err)
	}
	_, err = file.WriteString(torn[:1+n%(len(torn)-1)])
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("append-only file: %w", err)
	}
	return nil
}
