package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// dataDir is the folder of one run: redis/, keys/, logs/, bin/, demo.json. It
// is locked while anything that writes into it runs.
type dataDir struct {
	path string
	lock *os.File
}

// openDataDir creates the folder when needed and locks it. The private Redis
// inherits the lock, so that after a kill of this process the folder is free
// only when that Redis is gone, too; such an end takes moments, so a locked
// folder is tried for two seconds.
func openDataDir(path string) (*dataDir, error) {
	path, err := filepath.Abs(path)
	d := &dataDir{path: path}
	for _, sub := range []string{"", "keys", "logs", "bin", "redis"} {
		if err == nil {
			err = os.MkdirAll(d.file(sub), 0o700)
		}
	}

	if err == nil {
		d.lock, err = os.OpenFile(d.file("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	}

	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}

	err = poll(context.Background(), 2*time.Second, func() error { return syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err != nil {
		holder, _ := os.ReadFile(d.file("lock")) // without it the message is only less exact
		d.lock.Close()
		return nil, fmt.Errorf("the data directory %s is in use by another run (process %s): stop that one, or set DATA_DIR to another folder",
			path, strings.TrimSpace(string(holder)))
	}

	// This process's id is for the message of the next one.
	if err := os.WriteFile(d.file("lock"), fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		return nil, fmt.Errorf("data directory: %w", errors.Join(err, d.lock.Close()))
	}

	return d, nil
}

func (d *dataDir) file(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

func (d *dataDir) unlock() { _ = d.lock.Close() } // closing is what frees it

// write replaces a file in one step: readers see the old or the new content.
func (d *dataDir) write(name string, content []byte) error {
	target := d.file(name)
	fresh, err := os.CreateTemp(filepath.Dir(target), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(fresh.Name()) }() // gone already after the rename

	_, err = fresh.Write(content)
	err = errors.Join(err, fresh.Sync(), fresh.Close())
	if err != nil {
		return err
	}

	return os.Rename(fresh.Name(), target)
}

var keyFiles = map[string]string{
	"TOKEN_KEYS":    "token-keys",
	"TRACKING_KEYS": "tracking-keys",
	"BOOKS_KEYS":    "books-keys",
	"WEBHOOK_KEYS":  "webhook-keys",
	"ADMIN_KEY":     "admin-key",
	"ENGINE_KEY":    "engine-key",
}

// secrets generates what is lacking of the programs' keys and returns the
// variables that point to them. Keys stay the same over restarts: tokens,
// tracking links and sealed webhook secrets stay readable. A lost key of the
// webhooks' secrets is an error: with another one no webhook would be sent.
func (d *dataDir) secrets() ([]string, error) {
	webhookKeys := d.file("keys", keyFiles["WEBHOOK_KEYS"])
	_, err := os.Stat(webhookKeys)
	if data, _ := os.ReadDir(d.file("redis")); len(data) > 0 && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing, which the data beside it needs: put it back (a backup has it), or start again with make clean", webhookKeys)
	}

	var env []string
	for variable, name := range keyFiles {
		secret := hex.EncodeToString(randomKey())
		if strings.HasSuffix(variable, "_KEYS") { // a keyring (config.Keys)
			secret = "k1:" + base64.StdEncoding.EncodeToString(randomKey())
		}
		if _, err := d.key(name, secret); err != nil {
			return nil, fmt.Errorf("generate %s: %w", variable, err)
		}
		env = append(env, variable+"=", variable+"_FILE="+d.file("keys", name))
	}

	return env, nil
}

// redisPasswords generates what is lacking of the passwords of Redis's users, 256
// bits each, and returns all by the user's name.
func (d *dataDir) redisPasswords() (map[string]string, error) {
	passwords := map[string]string{}
	for _, user := range redisUsers {
		var err error
		passwords[user], err = d.key("redis-"+user, hex.EncodeToString(randomKey()))
		if err != nil {
			return nil, fmt.Errorf("password of redis's user %s: %w", user, err)
		}
	}
	return passwords, nil
}

// key is what a file of the keys holds, which is fresh when there is none.
func (d *dataDir) key(name, fresh string) (string, error) {
	content, err := os.ReadFile(d.file("keys", name))
	if errors.Is(err, os.ErrNotExist) {
		return fresh, d.write(filepath.Join("keys", name), []byte(fresh+"\n"))
	}
	return strings.TrimSpace(string(content)), err
}

func randomKey() []byte {
	key := make([]byte, 32)
	rand.Read(key) // never fails: crypto/rand ends the process instead
	return key
}

// adminKey is the key to present: the first of several while it is rotated.
func (d *dataDir) adminKey() (string, error) {
	content, err := os.ReadFile(d.file("keys", keyFiles["ADMIN_KEY"]))
	if err != nil {
		return "", fmt.Errorf("read ADMIN_KEY: %w", err)
	}
	first, _, _ := strings.Cut(string(content), ",")
	return strings.TrimSpace(first), nil
}

// DataDir is the folder that the environment's DATA_DIR names, .data without it, as an absolute
// path. A relative one counts from the top of the project, whatever the working directory: make
// runs there, and go test in the folder of the tested package.
func DataDir() (string, error) {
	dir := cmp.Or(os.Getenv("DATA_DIR"), ".data")
	if filepath.IsAbs(dir) {
		return dir, nil
	}

	root, err := ModuleDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, dir), nil
}
