package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// ScriptCall composes one call in one buffer that the next uses again, for the order's
// path. Not safe for concurrent use.
type ScriptCall struct {
	script script
	prefix string
	Buf    []byte
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

// Begin forgets the last call. Keys come before values.
func (c *ScriptCall) Begin(s script, r Partition) {
	c.script, c.prefix = s, r.Prefix
	c.Buf, c.ends, c.keys = c.Buf[:0], c.ends[:0], 0
}

func (c *ScriptCall) Key(kind byte, suffix []byte) {
	c.Buf = append(append(append(c.Buf, c.prefix...), kind), suffix...)
	c.ends = append(c.ends, len(c.Buf))
	c.keys++
}

// Value ends the value that was appended to buf.
func (c *ScriptCall) Value(buf []byte) {
	c.Buf = buf
	c.ends = append(c.ends, len(buf))
}

// Command is the call for the client, in a cluster with the sentinel key.
func (c *ScriptCall) Command(ctx context.Context, cluster bool) *redis.StringCmd {
	keys := c.keys
	if cluster {
		keys++
	}

	c.parts, c.args = c.parts[:0], append(c.args[:0], "fcall", c.script.arg, keys)
	start := 0
	for _, end := range c.ends {
		c.parts = append(c.parts, c.Buf[start:end])
		start = end
	}

	for i := range c.parts {
		if cluster && i == c.keys {
			c.args = append(c.args, sentinel(c.prefix))
		}
		c.args = append(c.args, &c.parts[i])
	}

	cmd := redis.NewStringCmd(ctx, c.args...)
	cmd.SetFirstKeyPos(3)

	return cmd
}

// sentinel is a key that never exists. Every call in a cluster names it, so that a server whose
// slot is moving redirects the whole call (TRYAGAIN) instead of stopping the script half done.
func sentinel(prefix string) string { return prefix + string(rune(KindSentinel)) }

func (l *Client) keysOf(keys []string) []string {
	if !l.IsCluster {
		return keys
	}
	tag := keys[0][:strings.IndexByte(keys[0], '}')+1]
	return append(keys[:len(keys):len(keys)], sentinel(tag))
}

// attempt calls a script until it succeeds, or fails in a way that does not pass.
func (l *Client) attempt(ctx context.Context, s *script, try func() error) error {
	var began time.Time
	if s.watched != nil {
		began = time.Now()
	}

	err := try()
	if err != nil {
		err = l.retry(ctx, err, try)
	}

	if s.watched != nil {
		s.watched(ctx, began, err)
	}

	if err != nil {
		return fmt.Errorf("script %s: %w", s.Name, Failure(err))
	}

	return nil
}

func (l *Client) Send(ctx context.Context, c *ScriptCall) (reply string, err error) {
	err = l.attempt(ctx, &c.script, func() error {
		cmd := c.Command(ctx, l.IsCluster)
		err := l.calls.Process(ctx, cmd)
		reply = cmd.Val()
		return err
	})
	return reply, err
}

func (l *Client) Run(ctx context.Context, file string, keys []string, args ...any) (reply any, err error) {
	s := l.Library.Scripts[file]
	keys = l.keysOf(keys)
	err = l.attempt(ctx, &s, func() (err error) {
		send := l.calls.FCall
		if s.reads {
			send = l.calls.FCallRO
		}
		reply, err = send(ctx, s.Name, keys, args...).Result()
		return err
	})

	return reply, err
}

func (l *Client) RunText(ctx context.Context, file string, keys []string, args ...any) (string, error) {
	reply, err := l.Run(ctx, file, keys, args...)
	if err != nil {
		return "", err
	}

	text, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("script %s answered %T instead of a string", file, reply)
	}
	return text, nil
}

// Refusals are the errors that replies of a script stand for.
type Refusals map[string]error

// RunWord runs a script that answers a word, which may be a refusal.
func (l *Client) RunWord(ctx context.Context, file string, refused Refusals, keys []string, args ...any) (string, error) {
	word, err := l.RunText(ctx, file, keys, args...)
	return word, cmp.Or(err, refused[word])
}

type Call struct {
	Keys []string
	Args []any
	File string // the script; empty: the one that runAll is asked for
}

// RunAll runs one script many times in one round trip, and again what may pass. Calls may name
// another script, which then shares the round trip.
func (l *Client) RunAll(ctx context.Context, file string, calls []Call) ([]*redis.Cmd, error) {
	s := l.Library.Scripts[file]
	if len(calls) == 0 {
		return nil, nil
	}

	cmds := make([]*redis.Cmd, len(calls))
	todo := make([]int, len(calls))
	for i := range calls {
		todo[i] = i
	}

	return cmds, l.attempt(ctx, &s, func() (worst error) {
		pipe := l.Redis.Pipeline()
		for _, i := range todo {
			called := l.Library.Scripts[cmp.Or(calls[i].File, file)]
			send := pipe.FCall
			if called.reads {
				send = pipe.FCallRO
			}
			cmds[i] = send(ctx, called.Name, l.keysOf(calls[i].Keys), calls[i].Args...)
		}

		_, _ = pipe.Exec(ctx) // each command carries its own error
		failed := todo[:0]
		for _, i := range todo {
			if err := cmds[i].Err(); err != nil && !errors.Is(err, redis.Nil) {
				failed = append(failed, i)
				if worst == nil || !l.isRetryable(err) {
					worst = err
				}
			}
		}

		todo = failed

		return worst
	})
}

// How long a call is repeated while a cluster changes hands, and the pauses: long enough
// for an orderly failover, not for the replacement of a dead master.
const (
	retryFor       = time.Second
	firstPause     = 10 * time.Millisecond
	longestPause   = 200 * time.Millisecond
	loadsOfOneCall = 3
)

// WithoutPauses is a context for calls that the caller repeats itself, at its next interval. Their
// attempt is repeated only for a library that is missing, and waits for no server.
func WithoutPauses(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutPausesKey{}, true)
}

type withoutPausesKey struct{}

// retry repeats a call while the server lacks the library or, in a cluster, is gone or moving the
// slot.
func (l *Client) retry(ctx context.Context, err error, try func() error) error {
	deadline := time.Now().Add(retryFor)
	loads, pause := 0, firstPause
	var loadFailure error
	for l.isRetryable(err) {
		if IsUnknownFunction(err) && errors.Is(loadFailure, ErrScriptsMissing) {
			return loadFailure
		}

		if IsUnknownFunction(err) && loads < loadsOfOneCall {
			loads++
			// In a cluster the one that matters may have it even so.
			loadFailure = l.LoadLibrary(ctx)
			if loadFailure != nil && !l.IsCluster {
				return loadFailure
			}
		} else {
			if ctx.Value(withoutPausesKey{}) != nil {
				return err
			}

			// Spread, so that all who wait do not come back at once.
			wait := pause/2 + rand.N(pause)
			if time.Now().Add(wait).After(deadline) {
				return err
			}
			Sleep(ctx, wait)
			if ctx.Err() != nil {
				return err
			}

			pause = min(2*pause, longestPause)
		}

		err = try()
		if err == nil {
			return nil
		}
	}

	return err
}

// isRetryable reports a failure that may soon pass; nothing replaces a single Redis. What was done, and only
// lacks a replica's confirmation, is not done again: a poll would count twice.
func (l *Client) isRetryable(err error) bool {
	if IsUnknownFunction(err) {
		return true
	}

	var reply redis.Error
	if errors.Is(err, ErrUnconfirmed) && !errors.As(err, &reply) {
		return false
	}
	return l.IsCluster && !errors.Is(err, context.Canceled) && errors.Is(Failure(err), delivery.ErrUnavailable)
}

// IsFull reports a server's refusal of what needs memory.
func IsFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

func IsUnknownFunction(err error) bool {
	return err != nil && err.Error() == "ERR Function not found"
}

// unavailablePrefixes begin the replies of a Redis that may serve later.
var unavailablePrefixes = []string{
	"LOADING", "OOM", "MISCONF", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN",
	"NOREPLICAS", "BUSY", "UNBLOCKED", "MOVED", "ASK", "NOAUTH", "WRONGPASS", "NOPERM",
}

// Failure wraps delivery.ErrUnavailable around every error but a server's reply
// that shows a defect of this program; nil stays nil.
func Failure(err error) error {
	if err == nil || errors.Is(err, delivery.ErrUnavailable) {
		return err
	}

	var reply redis.Error
	if !errors.As(err, &reply) || IsUnknownFunction(err) ||
		slices.ContainsFunc(unavailablePrefixes, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) }) {
		return fmt.Errorf("%w: %w", delivery.ErrUnavailable, err)
	}
	return err
}

func Failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, Failure(err))
}

// JoinCounted joins errors, each text once with its count; nil ones are left out.
func JoinCounted(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	counts := make(map[string]int, len(errs))
	for _, err := range errs {
		counts[err.Error()]++
	}

	for i, err := range errs {
		n := counts[err.Error()]
		counts[err.Error()] = 0
		switch {
		case n == 0:
			errs[i] = nil
		case n > 1:
			errs[i] = fmt.Errorf("%w (%d times)", err, n)
		}
	}

	return errors.Join(errs...)
}

func Text(value any) string {
	s, _ := value.(string)
	return s
}

const ItemsAtOnce = 500

// Pipelined queues the commands of each item, 500 items in a round trip, and returns what each item's
// result makes of the replies; nil: a zero R. A missing key is no error.
func Pipelined[T, R any](ctx context.Context, client redis.Cmdable, what string, items []T, queue func(redis.Pipeliner, T) (result func() R)) ([]R, error) {
	read := make([]R, 0, len(items))
	for page := range slices.Chunk(items, ItemsAtOnce) {
		results, errs := pipelinePage(ctx, client, page, queue)
		for _, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("%s: %w", what, Failure(err))
			}
		}
		read = append(read, results...)
	}

	return read, nil
}

// PipelinedEach is pipelined for callers that can use a part of the items: it returns an error for
// each item, nil where its result is valid. Partly makes one error of them. In a cluster it asks for
// every item; a single server that has answered nothing is not asked again, so that its death
// costs one round trip.
func PipelinedEach[T, R any](ctx context.Context, client redis.Cmdable, what string, items []T, queue func(redis.Pipeliner, T) (result func() R)) (results []R, errs []error) {
	_, isCluster := client.(*redis.ClusterClient)
	results = make([]R, len(items))
	errs = make([]error, len(items))

	var lost error // why nothing more is asked
	for first := 0; first < len(items); first += ItemsAtOnce {
		end := min(first+ItemsAtOnce, len(items))
		if lost != nil {
			for i := first; i < end; i++ {
				errs[i] = lost
			}
			continue
		}

		read, problems := pipelinePage(ctx, client, items[first:end], queue)
		copy(results[first:], read)
		isAnswered := false
		for i, err := range problems {
			isAnswered = isAnswered || err == nil
			if err != nil {
				errs[first+i] = fmt.Errorf("%s: %w", what, Failure(err))
			}
		}

		isOver := ctx.Err() != nil
		if !isAnswered && (!isCluster || isOver) {
			lost = errs[first]
		}
	}

	return results, errs
}

// pipelinePage sends the commands of some items in one round trip. errs has the first error of each
// item's commands; the result of an item with an error is a zero R.
func pipelinePage[T, R any](ctx context.Context, client redis.Cmdable, items []T, queue func(redis.Pipeliner, T) (result func() R)) (results []R, errs []error) {
	pipe := client.Pipeline()
	makers := make([]func() R, len(items))
	ends := make([]int, len(items)) // where each item's commands end
	for i, item := range items {
		makers[i] = queue(pipe, item)
		ends[i] = pipe.Len()
	}

	commands, _ := pipe.Exec(ctx) // each command has its own error

	results = make([]R, len(items))
	errs = make([]error, len(items))
	begin := 0
	for i, end := range ends {
		for _, c := range commands[begin:end] {
			err := c.Err()
			isProblem := err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "no such key")
			if isProblem && errs[i] == nil {
				errs[i] = err
			}
		}

		begin = end
		if errs[i] == nil && makers[i] != nil {
			results[i] = makers[i]()
		}
	}

	return results, errs
}

// ReadRecords reads and decodes the records under keys. What is missing, has no key or is
// unreadable is nil in its place. With ErrIncomplete that is also true of what could not be asked for.
func ReadRecords[T any](ctx context.Context, client redis.Cmdable, what string, keys []string, decode func(i int, record string) (*T, error)) (found []*T, unreadable []error, err error) {
	records, errs := PipelinedEach(ctx, client, what, keys, func(pipe redis.Pipeliner, key string) func() string {
		if key == "" {
			return nil
		}
		return pipe.Get(ctx, key).Val
	})

	err = Partly(errs)
	if err != nil && !errors.Is(err, ErrIncomplete) {
		return make([]*T, len(keys)), nil, err
	}

	found = make([]*T, len(records))
	for i, record := range records {
		if record == "" {
			continue
		}
		if value, err := decode(i, record); err != nil {
			unreadable = append(unreadable, err)
		} else {
			found[i] = value
		}
	}

	return found, unreadable, err
}

func Present[T any](all []*T) []*T {
	return slices.DeleteFunc(all, func(one *T) bool { return one == nil })
}

// Scan calls do with the keys that match, page by page, of several masters at once.
func (l *Client) Scan(ctx context.Context, pattern string, count int64, do func(context.Context, *redis.Client, []string) error) error {
	return l.EachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := one.Scan(ctx, cursor, pattern, count).Result()
			if err != nil {
				return Failed("listing keys", err)
			}
			if err := do(ctx, one, keys); err != nil || next == 0 {
				return err
			}
			cursor = next
		}
	})
}

func (l *Client) EachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	if many, ok := l.Redis.(*redis.ClusterClient); ok {
		return many.ForEachMaster(ctx, do)
	}
	return do(ctx, l.Redis.(*redis.Client))
}

// UpdateTries bounds how often a change that met a conflict is repeated.
const UpdateTries = 16
