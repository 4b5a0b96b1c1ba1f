package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal is a pair of files: what is typed into the first, the second reads
// as from a terminal.
func pseudoTerminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	raw, err := keyboard.SyscallConn() // Fd would take its deadlines away
	if err != nil {
		t.Fatal(err)
	}
	var number int
	if controlErr := raw.Control(func(fd uintptr) {
		if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
			err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		}
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return keyboard, tty
}

func TestUser_AsksTwiceOnATerminalAndShowsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ first, second, want string }{
		{longPassword, longPassword, ""},
		{longPassword, longPassword + "x", "the two passwords differ"},
	} {
		keyboard, tty := pseudoTerminal(t)
		var said strings.Builder
		typed := []string{c.first, c.second}
		prompts := writer(func(p []byte) (int, error) {
			said.Write(p)
			if strings.HasSuffix(string(p), ": ") && len(typed) > 0 {
				next := typed[0]
				typed = typed[1:]
				time.AfterFunc(50*time.Millisecond, func() { _, _ = keyboard.WriteString(next + "\n") }) // the terminal is silent by then
			}
			return len(p), nil
		})
		password, err := askPassword(tty, prompts, "ayse")
		if c.want == "" && (err != nil || password != c.first) || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%q, %v, want %q", password, err, c.want)
		}
		if got := said.String(); !strings.HasPrefix(got, "Password for ayse: ") || !strings.Contains(got, "Once more: ") || strings.Contains(got, c.first) {
			t.Errorf("it said %q", got)
		}
		// What the terminal shows of what was typed: nothing but line ends.
		if err := keyboard.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		shown := make([]byte, 256)
		n, _ := keyboard.Read(shown)
		if strings.TrimSpace(string(shown[:n])) != "" {
			t.Errorf("the terminal showed %q", shown[:n])
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
