package devclickhouse

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dataDir is the folder of one engine: lock, engine.xml, clickhouse/ with the
// tables, spool/ with results on their way. One process at a time has it.
type dataDir struct {
	path string
	lock *os.File
}

// engineConfig is an empty configuration. It is given so that the engine does
// not go looking for one: it would take a config.xml from the working folder,
// ~/.clickhouse-local or /etc, and with it paths and limits of somebody else's.
const engineConfig = "<clickhouse></clickhouse>\n"

// ErrInUse tells that another process has the data folder.
var ErrInUse = errors.New("the data folder is in use")

func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	d := &dataDir{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if d.lock, err = os.OpenFile(d.file("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := d.take(); err != nil {
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

// take locks the folder and readies what is in it.
func (d *dataDir) take() error {
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("lock the data folder: %w", err)
		}
		holder, _ := os.ReadFile(d.file("lock")) // without it the message is only less exact
		return fmt.Errorf("%w: %s, by process %s", ErrInUse, d.path, strings.TrimSpace(string(holder)))
	}
	err := errors.Join(
		d.lock.Truncate(0),
		os.RemoveAll(d.file("spool")), // of a process that was killed
		os.MkdirAll(d.file("spool"), 0o700),
		os.WriteFile(d.file("engine.xml"), []byte(engineConfig), 0o600),
	)
	if err == nil {
		_, err = d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// arguments are the engine's.
func (d *dataDir) arguments() []string {
	return []string{"--path=" + d.file("clickhouse"), "--config-file=" + d.file("engine.xml")}
}

func (d *dataDir) close() { d.lock.Close() } // which frees the lock
