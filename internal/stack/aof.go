package stack

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mendTail takes what a crash has left unfinished off the end of the append-only
// file below dir, back to where the last whole command or transaction ends. None
// of it was acknowledged.
//
// A server with aof-load-truncated does that by itself, but (7.0.15) not all of
// it: if the file ends within a command of a transaction, the transaction's
// beginning stays, what is written next stands behind it, and the start after
// that applies the beginning together with what follows: half a script. Elsewhere
// than here `redis-check-aof --fix` before the start does the same as this.
//
// What is wrong in another way is left for the server to refuse.
func mendTail(dir string) error {
	path, err := NewestAOF(dir)
	if err != nil || path == "" {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the server says what it misses
	}
	if err != nil {
		return fmt.Errorf("append-only file: %w", err)
	}
	defer file.Close()
	whole, torn, err := wholeUntil(bufio.NewReaderSize(file, 1<<20))
	if err == nil && torn {
		err = errors.Join(file.Truncate(whole), file.Sync())
	}
	if err != nil {
		return fmt.Errorf("append-only file: %w", err)
	}
	return nil
}

// NewestAOF is the file to which the server of a Dir appends; "": there is none yet.
func NewestAOF(dir string) (path string, err error) {
	folder := filepath.Join(dir, "appendonlydir")
	manifest, err := os.ReadFile(filepath.Join(folder, "appendonly.aof.manifest"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("append-only file: %w", err)
	}
	for line := range strings.Lines(string(manifest)) {
		// file appendonly.aof.3.incr.aof seq 3 type i
		if fields := strings.Fields(line); len(fields) >= 6 && fields[5] == "i" {
			path = filepath.Join(folder, fields[1])
		}
	}
	return path, nil
}

// errAOF is something that no unfinished write explains.
var errAOF = errors.New("not a command")

// wholeUntil reads commands and says where the last whole one or the last whole
// transaction ends, and whether an unfinished one follows.
func wholeUntil(in *bufio.Reader) (whole int64, torn bool, err error) {
	at, inside := int64(0), false
	for {
		length, name, err := readCommand(in)
		switch {
		case err == io.EOF && length == 0: //nolint:errorlint // bufio returns it bare
			return whole, inside, nil
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF): //nolint:errorlint // bufio returns it bare
			return whole, true, nil
		case errors.Is(err, errAOF):
			return 0, false, nil
		case err != nil:
			return 0, false, err
		}
		at += length
		switch name {
		case "MULTI":
			inside = true
		case "EXEC":
			inside = false
		}
		if !inside {
			whole = at
		}
	}
}

// readCommand reads one command, or a line of annotation, and tells its length
// and, of a command without arguments, its name in capitals.
func readCommand(in *bufio.Reader) (length int64, name string, err error) {
	line, err := in.ReadString('\n')
	length = int64(len(line))
	if err != nil || line[0] == '#' {
		return length, "", err
	}
	parts, err := number(line, '*')
	if err != nil {
		return length, "", err
	}
	for range parts {
		if line, err = in.ReadString('\n'); err != nil {
			return length + int64(len(line)), "", err
		}
		size, err := number(line, '$')
		if err != nil {
			return length, "", err
		}
		length += int64(len(line)) + int64(size) + 2
		if parts > 1 {
			if _, err := in.Discard(size + 2); err != nil {
				return length, "", err
			}
			continue
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return length, "", err
		}
		name = strings.ToUpper(string(text[:size]))
	}
	return length, name, nil
}

// mostBytes bounds a string of a command, as Redis does.
const mostBytes = 512 << 20

func number(line string, kind byte) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(line[1:], "\r\n"))
	if line[0] != kind || err != nil || n < 0 || n > mostBytes {
		return 0, errAOF
	}
	return n, nil
}
