package stack

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// repairTail takes what a crash has left unfinished off the end of the append-only
// file below dir, back to where the last whole command or transaction ends. None
// of it was acknowledged.
//
// With aof-load-truncated the server (7.0.15) cuts off an unfinished command but leaves
// the beginning of its transaction; the start after that applies it together with what
// was written behind it: half a script. `redis-check-aof --fix` before the start does the
// same as this, but it also cuts off everything behind a damaged part. Such a file is
// left for the server to refuse.
func repairTail(dir string) error {
	path, err := NewestAOF(dir)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // there is none yet, or the server says what it misses
	}

	if err != nil {
		return err
	}
	defer file.Close()

	whole, torn, err := wholeUntil(file)
	if err == nil && torn {
		err = errors.Join(file.Truncate(whole), file.Sync())
	}

	return err
}

// NewestAOF is the file to which the server of a Dir appends; "": there is none yet.
func NewestAOF(dir string) (path string, err error) {
	folder := filepath.Join(dir, "appendonlydir")
	manifest, err := os.ReadFile(filepath.Join(folder, "appendonly.aof.manifest"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}

	for line := range strings.Lines(string(manifest)) {
		// file appendonly.aof.3.incr.aof seq 3 type i
		if fields := strings.Fields(line); len(fields) >= 6 && fields[5] == "i" {
			path = filepath.Join(folder, fields[1])
		}
	}

	return path, err
}

// errDamaged is something in the file that no unfinished write explains.
var errDamaged = errors.New("not a command")

// wholeUntil reads commands and says where the last whole one or the last whole
// transaction ends, and whether an unfinished one follows.
func wholeUntil(file io.Reader) (whole int64, torn bool, err error) {
	in := bufio.NewReaderSize(file, 1<<20)
	for at, inside := int64(0), false; ; {
		length, name, err := readCommand(in)
		switch {
		case errors.Is(err, io.EOF):
			return whole, inside || length > 0, nil
		case errors.Is(err, errDamaged):
			return 0, false, nil
		case err != nil:
			return 0, false, err
		}

		inside = name == "MULTI" || inside && name != "EXEC"
		at += length
		if !inside {
			whole = at
		}
	}
}

// readCommand reads one command, or a line of annotation, and returns its length
// and its name in capitals. After io.EOF the length is what was there.
func readCommand(in *bufio.Reader) (length int64, name string, err error) {
	header := func(kind byte) (int, error) {
		line, err := in.ReadString('\n')
		length += int64(len(line))
		if err != nil || line[0] == '#' && kind == '*' {
			return 0, err
		}
		n, err := strconv.Atoi(strings.TrimSuffix(line[1:], "\r\n"))
		if line[0] != kind || err != nil || n < 0 || n > mostBytes {
			return 0, errDamaged
		}

		return n, nil
	}

	parts, err := header('*')
	for i := 0; i < parts && err == nil; i++ {
		var size, read int
		size, err = header('$')
		if err != nil {
			break
		}

		if i == 0 && size <= len("MULTI") { // a longer name is not asked for
			text, _ := in.Peek(size) // a short one ends below
			name = strings.ToUpper(string(text))
		}

		read, err = in.Discard(size + 2)
		length += int64(read)
	}

	return length, name, err
}

// mostBytes bounds a string of a command, as Redis does.
const mostBytes = 512 << 20
