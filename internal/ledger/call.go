package ledger

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// scriptCall composes one call of a script and keeps its memory for the next:
// every key and value lies in one buffer, and nothing is boxed. It serves the
// order's path; elsewhere run is plainer. Not safe for concurrent use, and not
// to be touched while it is being sent.
type scriptCall struct {
	script script
	prefix string
	buf    []byte
	ends   []int // where each key, and behind them each value, ends in buf
	keys   int
	parts  []argument
	args   []any
}

// argument is a part of the buffer as the client writes it, without a copy.
type argument []byte

// MarshalBinary is how the client reads it.
func (a *argument) MarshalBinary() ([]byte, error) { return *a, nil }

// String is how the client of a cluster reads the key that it routes by.
func (a *argument) String() string { return string(*a) }

// begin forgets the last call. Keys come before values.
func (c *scriptCall) begin(s script, r room) {
	c.script, c.prefix = s, r.prefix
	c.buf, c.ends, c.keys = c.buf[:0], c.ends[:0], 0
}

func (c *scriptCall) key(kind byte, suffix []byte) {
	c.buf = append(append(append(c.buf, c.prefix...), kind), suffix...)
	c.ends = append(c.ends, len(c.buf))
	c.keys++
}

// value ends the value that was appended to buf.
func (c *scriptCall) value(buf []byte) {
	c.buf = buf
	c.ends = append(c.ends, len(buf))
}

// command is the call as the client takes it.
func (c *scriptCall) command(ctx context.Context) *redis.StringCmd {
	c.parts, c.args = c.parts[:0], append(c.args[:0], "fcall", c.script.arg, c.keys)
	start := 0
	for _, end := range c.ends {
		c.parts = append(c.parts, c.buf[start:end])
		start = end
	}
	for i := range c.parts {
		c.args = append(c.args, &c.parts[i])
	}
	cmd := redis.NewStringCmd(ctx, c.args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// send runs the call and returns its reply, like runText.
func (l *Ledger) send(ctx context.Context, c *scriptCall) (string, error) {
	cmd := c.command(ctx)
	err := l.calls.Process(ctx, cmd)
	if isUnknownFunction(err) {
		if err := l.loadLibrary(ctx, c.parts[0].String()); err != nil {
			return "", err
		}
		cmd = c.command(ctx)
		err = l.calls.Process(ctx, cmd)
	}
	if err != nil {
		return "", fmt.Errorf("script %s: %w", c.script.name, failure(err))
	}
	return cmd.Val(), nil
}
