package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"vendorapi/internal/testenv/testserver"
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
	raw, err := keyboard.SyscallConn() // Fd would end its deadlines
	if err != nil {
		t.Fatal(err)
	}

	var number int
	if controlErr := raw.Control(func(fd uintptr) {
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		if err == nil {
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

func TestReport_OnATerminalIsATable(t *testing.T) {
	t.Parallel()

	_, flags := archiveWith(t, 3)
	screen, tty := pseudoTerminal(t)
	c := newReportCommand()
	c.SetOut(tty)
	c.SetArgs(append([]string{"expected-collections", "--from", "2026-11-01", "--to", "2026-11-01"}, flags...))
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}

	shown := make([]byte, 100)
	if _, err := io.ReadFull(screen, shown); err != nil || !strings.HasPrefix(string(shown), "Expected collections, 2026-11-01 to 2026-11-01") {
		t.Errorf("shown was %q, %v", shown, err)
	}
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
				go func() { // a person types when the terminal has become silent
					testserver.Await(t, "the terminal is silent", func() bool { return silent(tty) })
					_, _ = keyboard.WriteString(next + "\n")
				}()
			}

			return len(p), nil
		})

		password, err := askPassword(tty, prompts, "ayse", true)
		if c.want == "" && (err != nil || password != c.first) || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%q, %v, want %q", password, err, c.want)
		}
		if got := said.String(); !strings.HasPrefix(got, "Password for ayse: ") || !strings.Contains(got, "Once more: ") || strings.Contains(got, c.first) {
			t.Errorf("it said %q", got)
		}

		// What the terminal shows of what was typed: nothing but line ends.
		_, _ = tty.WriteString("end")
		shown := ""
		for b := make([]byte, 256); !strings.HasSuffix(shown, "end"); {
			n, err := keyboard.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			shown += string(b[:n])
		}

		if strings.TrimSpace(shown) != "end" {
			t.Errorf("the terminal showed %q", shown)
		}
	}
}

func silent(tty *os.File) (yes bool) {
	raw, err := tty.SyscallConn()
	if err != nil {
		return false
	}

	err = raw.Control(func(fd uintptr) {
		state, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		yes = err == nil && state.Lflag&unix.ECHO == 0
	})

	return yes && err == nil
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
