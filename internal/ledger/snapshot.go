package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is a master whose data a snapshot holds.
type Node struct {
	Addr  string
	Slots string // of a cluster, as "0-5460,6000-6001"; empty: a single server
}

// Snapshots hands take the data of every master, one after the other, as an RDB
// file that streams in. A master forks for it and goes on answering; the file
// holds whatever it has answered before Snapshots was called. take must read to
// the end and check the sum in it (RDBSum): a connection that breaks is an error
// of the reader.
//
// The masters of a cluster are copied at different moments. All of an account is
// on one of them, so a copy is consistent for each account.
func (l Backup) Snapshots(ctx context.Context, take func(Node, io.Reader) error) error {
	var nodes []*redis.Client
	var mu sync.Mutex // masters of a cluster are listed at once
	err := l.eachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, one)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing masters: %w", failure(err))
	}
	slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	for _, one := range nodes {
		if err := l.snapshot(ctx, one, take); err != nil {
			return fmt.Errorf("snapshot of %s: %w", one.Options().Addr, err)
		}
	}
	return nil
}

// eachMaster runs do for every master, of a cluster at once.
func (l *core) eachMaster(ctx context.Context, do func(context.Context, *redis.Client) error) error {
	if many, ok := l.rdb.(*redis.ClusterClient); ok {
		return many.ForEachMaster(ctx, do)
	}
	return do(ctx, l.rdb.(*redis.Client))
}

// snapshotSilence is how long a master may say nothing: while it forks, and, where
// it is configured to wait for further replicas, a little longer.
const snapshotSilence = time.Minute

func (l *core) snapshot(ctx context.Context, one *redis.Client, take func(Node, io.Reader) error) error {
	node := Node{Addr: one.Options().Addr}
	role, err := one.Info(ctx, "replication").Result()
	if err != nil {
		return failure(err)
	}
	if !strings.Contains(role, "role:master") {
		return errors.New("it is a replica, which may lack what its master has acknowledged: name the master")
	}
	if l.cluster {
		if node.Slots, err = slotsOf(ctx, one); err != nil {
			return failure(err)
		}
	}
	o := one.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return failure(err)
	}
	defer func() { _ = conn.Close() }() // all that counts has been read, or there is an error already
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReaderSize(patient{conn}, 256<<10)
	rdb, err := requestSnapshot(conn, in, o.Username, o.Password)
	if err != nil {
		return err
	}
	if err := take(node, rdb); err != nil {
		return errors.Join(err, ctx.Err())
	}
	return nil
}

// patient waits for snapshotSilence at most, whatever it reads.
type patient struct{ conn net.Conn }

func (p patient) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(snapshotSilence)); err != nil {
		return 0, err
	}
	return p.conn.Read(b)
}

// requestSnapshot asks as a replica does, which wants nothing but the file, and
// says so: else the master would keep what is written meanwhile for it, and drop
// it when that grows too large.
func requestSnapshot(out io.Writer, in *bufio.Reader, user, password string) (io.Reader, error) {
	var commands [][]string
	switch {
	case user != "":
		commands = append(commands, []string{"AUTH", user, password})
	case password != "":
		commands = append(commands, []string{"AUTH", password})
	}
	commands = append(commands, []string{"REPLCONF", "capa", "eof"}, []string{"REPLCONF", "rdb-only", "1"}, []string{"SYNC"})
	for _, c := range commands {
		request := fmt.Sprintf("*%d\r\n", len(c))
		for _, word := range c {
			request += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		if _, err := io.WriteString(out, request); err != nil {
			return nil, err
		}
		reply, err := replyLine(in)
		if err != nil {
			return nil, err
		}
		switch {
		case reply[0] == '-':
			return nil, fmt.Errorf("%s: %s", c[0], reply[1:]) // c[1:] may be a password
		case c[0] == "SYNC":
			return snapshotBody(reply, in)
		}
	}
	return nil, errors.New("no snapshot was asked for")
}

// replyLine is the next line that is not one of the empty ones by which a master
// says that it is still at it.
func replyLine(in *bufio.Reader) (string, error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			return line, nil
		}
	}
}

// snapshotBody reads what SYNC announces: "$<bytes>", or "$EOF:<mark>" with the
// mark again at the end.
func snapshotBody(header string, in *bufio.Reader) (io.Reader, error) {
	if mark, ok := strings.CutPrefix(header, "$EOF:"); ok && len(mark) == 40 {
		return &markedReader{in: in, mark: mark}, nil
	}
	size, err := strconv.ParseInt(strings.TrimPrefix(header, "$"), 10, 64)
	if err != nil || header[0] != '$' || size < 1 {
		return nil, fmt.Errorf("SYNC answers %q", header)
	}
	return &sizedReader{in: in, left: size}, nil
}

// sizedReader ends after so many bytes and not before.
type sizedReader struct {
	in   io.Reader
	left int64
}

func (r *sizedReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.in.Read(b[:min(int64(len(b)), r.left)])
	if r.left -= int64(n); errors.Is(err, io.EOF) && r.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// markedReader ends before the mark, 40 random bytes that the master has drawn.
type markedReader struct {
	in   *bufio.Reader
	mark string
}

func (r *markedReader) Read(b []byte) (int, error) {
	ahead, err := r.in.Peek(len(r.mark))
	switch {
	case errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	case err != nil:
		return 0, err
	case string(ahead) == r.mark:
		return 0, io.EOF
	}
	// The last 40 bytes may be the beginning of the mark; the first is not.
	n := max(r.in.Buffered()-len(r.mark), 1)
	return r.in.Read(b[:min(n, len(b))])
}

func slotsOf(ctx context.Context, one *redis.Client) (string, error) {
	id, err := one.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return "", err
	}
	all, err := one.ClusterSlots(ctx).Result() //nolint:staticcheck // ranges with their master first are all that is wanted; every server still has SLOTS
	if err != nil {
		return "", err
	}
	var ranges []string
	for _, s := range all {
		if len(s.Nodes) > 0 && s.Nodes[0].ID == id {
			ranges = append(ranges, fmt.Sprintf("%d-%d", s.Start, s.End))
		}
	}
	return strings.Join(ranges, ","), nil
}
