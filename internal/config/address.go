package config

import (
	"errors"
	"net"
	"strconv"
)

// CheckAddr judges where a program is to listen: host:port, with a number from 0
// (any free port) to 65535. Whether the host is this machine's shows at the start.
func CheckAddr(addr string) error {
	if addr == "" {
		return errors.New("missing")
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return errors.New("want host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("want a port from 0 to 65535")
	}
	return nil
}
