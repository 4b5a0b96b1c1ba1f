package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// redisCommand sends one command over a connection of its own and returns a
// status, integer or bulk reply as text, an array's as lines. An error reply is
// an error.
func redisCommand(ctx context.Context, network, addr string, args ...string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return ask(conn, args...)
}

// ask sends one command over a connection and waits for its reply, 5 s at most.
func ask(conn net.Conn, args ...string) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return "", err
	}
	return readReply(bufio.NewReader(conn))
}

func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", errors.New("empty reply")
	}
	switch kind, rest := line[0], line[1:]; kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", errors.New(rest)
	case '$':
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return "", fmt.Errorf("reply %q", line)
		}
		bulk := make([]byte, n+2)
		if _, err := io.ReadFull(in, bulk); err != nil {
			return "", err
		}
		return string(bulk[:n]), nil
	case '*':
		n, err := strconv.Atoi(rest)
		if err != nil {
			return "", fmt.Errorf("reply %q", line)
		}
		var items []string
		for range n {
			item, err := readReply(in)
			if err != nil {
				return "", err
			}
			items = append(items, item)
		}
		return strings.Join(items, "\n"), nil
	}
	return "", fmt.Errorf("unexpected reply %q", line)
}
