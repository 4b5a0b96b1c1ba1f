package inject

import (
	"context"
	"fmt"
	"strings"

	"vendorapi/internal/stack"
)

// Redis is a server, for the few commands by which an operator does harm.
// Nothing but harm is done with it: whoever wants data asks the ledger.
type Redis struct {
	*stack.Redis
}

func (r Redis) do(ctx context.Context, args ...string) (string, error) {
	reply, err := r.Command(ctx, args...)
	if err != nil {
		return "", fmt.Errorf("redis: %s: %w", args[0], err)
	}
	return reply, nil
}

// FlushScripts makes the server forget every function and script, as a fresh one
// in a failover has none.
func (r Redis) FlushScripts(ctx context.Context) error {
	if _, err := r.do(ctx, "FUNCTION", "FLUSH", "SYNC"); err != nil {
		return err
	}
	_, err := r.do(ctx, "SCRIPT", "FLUSH")
	return err
}

// Streams are the names of all streams.
func (r Redis) Streams(ctx context.Context) (names []string, err error) {
	for cursor := "0"; ; {
		reply, err := r.do(ctx, "SCAN", cursor, "TYPE", "stream", "COUNT", "10000")
		if err != nil {
			return nil, err
		}
		cursor, reply, _ = strings.Cut(reply, "\n")
		if reply != "" {
			names = append(names, strings.Split(reply, "\n")...)
		}
		if cursor == "0" {
			return names, nil
		}
	}
}

// DestroyGroup removes a consumer group from a stream with everything that it
// remembers; false: there was none.
func (r Redis) DestroyGroup(ctx context.Context, stream, group string) (bool, error) {
	reply, err := r.do(ctx, "XGROUP", "DESTROY", stream, group)
	return reply == "1", err
}

// Fill sets the memory limit to what is in use already, so that every write is
// refused; Unfill takes it back.
func (r Redis) Fill(ctx context.Context) error {
	_, err := r.do(ctx, "CONFIG", "SET", "maxmemory", "1mb")
	return err
}

// Unfill lifts the limit of Fill.
func (r Redis) Unfill(ctx context.Context) error {
	_, err := r.do(ctx, "CONFIG", "SET", "maxmemory", "0")
	return err
}
