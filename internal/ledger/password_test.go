package ledger

import (
	"strings"
	"testing"
)

// What a program says of a URL that is wrong ends in a log.
func TestOpen_NeverRepeatsThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://gateway:hunter2/x@127.0.0.1:6379",
		"redis://gateway:123/hunter2@127.0.0.1:6379",
		"redis://gateway:123?hunter2=1@127.0.0.1:6379",
		"hunter2://gateway@127.0.0.1:6379",
		"redis://gateway:hunter2%zz@127.0.0.1:6379",
		"redis://gateway:hunter2@127.0.0.1:port",
		"redis://gateway:hunter2@127.0.0.1:6379/database",
		"redis://gateway:hunter2@127.0.0.1:6379?unknown=1",
		"http://gateway:hunter2@127.0.0.1:6379",
		"redis://gateway:hunter2 @127.0.0.1:6379",
		"redis://gateway:hunter2@127.0.0.1:1",
	} {
		l, err := Open(t.Context(), Config{URL: url, Environment: "sandbox"})
		if err == nil {
			t.Errorf("%s was opened", url)
			l.Close()
			continue
		}
		check(t, !strings.Contains(err.Error(), "hunter2"), "%s: %v", url, err)
	}
}
