package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
)

// checkVariables checks every variable of `make run` without starting anything,
// and writes what is in force. No password is shown.
func checkVariables(env func(string) string, out io.Writer) error {
	o, err := options(env, io.Discard)
	faults := []error{err}
	text := "# make run: ok\n"
	for _, v := range variables(&o) {
		shown, err := v.show(*v.into)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", v.name, err))
		}
		text += fmt.Sprintf("%-18s %s\n", v.name, shown)
	}
	text += fmt.Sprintf("%-18s %s\n%-18s %t\n", "COURIER_STEP", o.CourierStep, "REDIS_TLS", o.RedisTLS)
	if err := errors.Join(faults...); err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

func shownText(text string) (string, error) { return text, nil }

// shownAddr checks host:port; an address that the programs choose is empty.
func shownAddr(addr string) (string, error) {
	if addr == "" {
		return "(a free port)", nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("%q: want host:port", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("%q: want a port from 1 to 65535", addr)
	}
	return addr, nil
}

// shownURL checks the form of a URL, empty for one that this run makes itself.
func shownURL(text string) (string, error) {
	if text == "" {
		return "(started by this run)", nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" && u.Scheme != "unix" {
		return "", errors.New("no URL (it is not shown, for it may hold a password)")
	}
	return u.Redacted(), nil
}
