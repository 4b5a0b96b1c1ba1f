package operations

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
)

// Backup copies Redis, and makes a restored copy fit to go on.
type Backup struct {
	core     *core.Client
	accounts *accounts.Accounts
	sessions *Sessions
}

// NewBackup returns the calls of backups.
func NewBackup(c *core.Client, accountList *accounts.Accounts, sessions *Sessions) *Backup {
	return &Backup{core: c, accounts: accountList, sessions: sessions}
}

// A backup reads ClickHouse before Redis. A Hold is a consumer group in every exported stream where
// the exporter stood before: Trim and Retire keep what follows it, and a restored exporter goes on
// from it.

// Hold keeps what has not been exported, and marks Redis with the backup's id,
// until Release. It removes expired holds and returns the hold's name.
func (l *Backup) Hold(ctx context.Context, backup string, now time.Time) (string, error) {
	hold := core.HoldPrefix + strconv.FormatInt(now.Unix(), 10)
	err := l.eachExported(ctx, func(key string, groups []redis.XInfoGroup) error {
		group, _ := core.GroupOf(groups, core.RoleExport)
		from := group.LastDeliveredID
		if pending, err := l.core.OldestPending(ctx, key, group); err != nil {
			return err
		} else if pending != "" {
			from = IdBefore(pending)
		}

		for _, g := range groups {
			if core.HoldExpired(g.Name, now) {
				if err := l.core.Redis.XGroupDestroy(ctx, key, g.Name).Err(); err != nil {
					return err
				}
			}
		}

		return l.core.Redis.XGroupCreate(ctx, key, hold, from).Err()
	})

	if err == nil {
		err = core.Failure(l.core.Redis.HSet(ctx, l.core.MetaKey(), "backup", backup).Err())
	}

	if err != nil {
		return "", errors.Join(fmt.Errorf("holding the streams: %w", err), l.Release(context.WithoutCancel(ctx), hold))
	}

	return hold, nil
}

// Release ends a hold. It may be repeated.
func (l *Backup) Release(ctx context.Context, hold string) error {
	err := l.core.Redis.HDel(ctx, l.core.MetaKey(), "backup").Err()
	return core.Failed("releasing the streams", errors.Join(core.Failure(err), l.eachExported(ctx, func(key string, _ []redis.XInfoGroup) error {
		return l.core.Redis.XGroupDestroy(ctx, key, hold).Err()
	})))
}

// Note keeps when the latest whole backup began, for Monitor.LastBackup.
func (l *Backup) Note(ctx context.Context, began time.Time) error {
	return core.Failed("noting the backup", l.core.Redis.HSet(ctx, l.core.MetaKey(), "backed_up", began.Unix()).Err())
}

// ErasureList is the id of the environment's list of erasures: the one that it has, or the one given,
// whose list must be on a disk already. Both may be empty.
func (l *Backup) ErasureList(ctx context.Context, id string) (string, error) {
	pipe := l.core.Redis.Pipeline()
	if id != "" {
		pipe.HSetNX(ctx, l.core.MetaKey(), "erasures", id)
	}

	known := pipe.HMGet(ctx, l.core.MetaKey(), "erasures")
	if _, err := pipe.Exec(ctx); err != nil {
		return "", core.Failed("reading the list of erasures' id", err)
	}
	return core.Text(known.Val()[0]), nil
}

func (l *Backup) eachExported(ctx context.Context, do func(key string, groups []redis.XInfoGroup) error) error {
	return l.core.EachStream(core.RoleExport, func(_ core.Partition, key string) error {
		groups, there, err := l.core.GroupsOf(ctx, key)
		if err == nil && there {
			err = core.Failure(do(key, groups))
		}
		return err
	})
}

// IdBefore is the greatest id that is less; of 0-0 itself.
func IdBefore(id string) string {
	ms, sequence := core.SplitStreamID(id)
	switch {
	case sequence > 0:
		sequence--
	case ms > 0:
		ms, sequence = ms-1, math.MaxUint64
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(sequence, 10)
}

// ErrOtherCopy says that Redis does not hold the backup that is to be finished.
var ErrOtherCopy = errors.New("this Redis does not hold that backup")

// Resumed is what Resume has changed.
type Resumed struct {
	Before   bool // it was resumed earlier, and nothing was left to do
	Streams  int  // whose exporter goes on where it stood before ClickHouse was copied
	Sessions int  // of the panel that were ended
}

// Resume prepares a Redis that was restored from a backup, before any program is started:
//
//   - The exporter goes on where it stood before ClickHouse was copied.
//   - Sessions of the panel end: one that was ended after the backup would be
//     open again.
//   - The accounts' names are compared with the accounts: a cluster's masters were copied
//     at slightly different moments.
//
// ErrOtherCopy unless Redis was restored from that backup. It may be repeated after an error.
func (l *Backup) Resume(ctx context.Context, backup, hold string) (Resumed, error) {
	done := Resumed{}
	before, err := l.resumable(ctx, backup)
	if err != nil || before {
		return Resumed{Before: before}, err
	}
	done.Streams, err = l.setBack(ctx, hold)
	if err != nil {
		return done, err
	}
	done.Sessions, err = l.endSessions(ctx)
	if err != nil {
		return done, err
	}
	if err := l.accounts.RepairNames(ctx); err != nil {
		return done, err
	}

	// Last: until here all of it would be done again.
	meta := l.core.MetaKey()
	pipe := l.core.Redis.TxPipeline()
	pipe.HSet(ctx, meta, "restored", backup)
	pipe.HDel(ctx, meta, "backup")
	if _, err := pipe.Exec(ctx); err != nil {
		return done, core.Failed("noting that the backup is restored", err)
	}

	return done, nil
}

// Resumable is nil when Redis was restored from that backup; else ErrOtherCopy.
func (l *Backup) Resumable(ctx context.Context, backup string) error {
	_, err := l.resumable(ctx, backup)
	return err
}

// resumable reports whether Redis, which was restored from that backup, was resumed before.
func (l *Backup) resumable(ctx context.Context, backup string) (before bool, err error) {
	known, err := l.core.Redis.HMGet(ctx, l.core.MetaKey(), "backup", "restored").Result()
	if err != nil {
		return false, core.Failed("reading the ledger's meta", err)
	}

	before = known[1] == any(backup)
	if !before && known[0] != any(backup) {
		return false, ErrOtherCopy
	}
	return before, nil
}

// setBack moves the exporter's group to the hold's position, and removes all holds.
func (l *Backup) setBack(ctx context.Context, hold string) (streams int, err error) {
	err = l.eachExported(ctx, func(key string, groups []redis.XInfoGroup) error {
		held, _ := core.GroupOf(groups, core.Role(hold)) // 0-0 of a stream that is younger than the hold
		pipe := l.core.Redis.TxPipeline()
		pipe.XGroupDestroy(ctx, key, string(core.RoleExport))
		pipe.XGroupCreate(ctx, key, string(core.RoleExport), held.LastDeliveredID)
		for _, g := range groups {
			if strings.HasPrefix(g.Name, core.HoldPrefix) {
				pipe.XGroupDestroy(ctx, key, g.Name)
			}
		}

		streams++
		_, err := pipe.Exec(ctx)

		return err
	})

	return streams, core.Failed("setting the exporter back", err)
}

// endSessions removes all sessions, and returns how many there were.
func (l *Backup) endSessions(ctx context.Context) (ended int, err error) {
	err = l.core.Scan(ctx, l.sessions.keys()+"*", 5000, func(ctx context.Context, one *redis.Client, keys []string) error {
		if len(keys) == 0 {
			return nil
		}
		ended += len(keys)
		return core.Failed("ending sessions", one.Del(ctx, keys...).Err())
	})
	return ended, err
}

// Node is a master whose data a snapshot holds.
type Node struct {
	Addr  string
	Slots string // of a cluster, as "0-5460,6000-6001"; empty: a single server
}

// Snapshots calls take with the RDB stream of each master in turn, which holds whatever was
// answered before the call. take must read to the end and check the sum (RDBSum); a broken
// connection is an error of the reader.
//
// Masters are copied at different moments. All of an account is on one of them, so a copy is
// consistent for each account.
func (l *Backup) Snapshots(ctx context.Context, take func(Node, io.Reader) error) error {
	var nodes []*redis.Client
	var mu sync.Mutex // masters of a cluster are listed at once
	err := l.core.EachMaster(ctx, func(_ context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, one)
		return nil
	})
	if err != nil {
		return core.Failed("listing masters", err)
	}

	slices.SortFunc(nodes, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	for _, one := range nodes {
		if err := l.snapshot(ctx, one, take); err != nil {
			return fmt.Errorf("snapshot of %s: %w", one.Options().Addr, err)
		}
	}

	return nil
}

// snapshotSilence is how long a master may send nothing, as while it forks.
const snapshotSilence = time.Minute

func (l *Backup) snapshot(ctx context.Context, one *redis.Client, take func(Node, io.Reader) error) error {
	node := Node{Addr: one.Options().Addr}
	role, err := one.Info(ctx, "replication").Result()
	if err != nil {
		return core.Failure(err)
	}

	if !strings.Contains(role, "role:master") {
		return errors.New("it is a replica, which may lack what its master has acknowledged: name the master")
	}

	if l.core.IsCluster {
		node.Slots, err = slotsOf(ctx, one)
		if err != nil {
			return core.Failure(err)
		}
	}

	o := one.Options()
	conn, err := o.Dialer(ctx, o.Network, o.Addr)
	if err != nil {
		return core.Failure(err)
	}
	defer func() { _ = conn.Close() }() // all that counts has been read, or there is an error already

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	in := bufio.NewReaderSize(timedReader{conn}, 256<<10)
	rdb, err := RequestSnapshot(conn, in, o.Username, o.Password)
	if err != nil {
		return err
	}
	if err := take(node, rdb); err != nil {
		return errors.Join(err, ctx.Err())
	}

	return nil
}

// timedReader waits for snapshotSilence at most.
type timedReader struct{ conn net.Conn }

func (p timedReader) Read(b []byte) (int, error) {
	if err := p.conn.SetReadDeadline(time.Now().Add(snapshotSilence)); err != nil {
		return 0, err
	}
	return p.conn.Read(b)
}

// RequestSnapshot asks as a replica that wants the file only: for others the master would
// buffer later writes, and drop them when they grow too large.
func RequestSnapshot(out io.Writer, in *bufio.Reader, user, password string) (io.Reader, error) {
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
			return SnapshotBody(reply, in)
		}
	}

	return nil, errors.New("no snapshot was asked for")
}

// replyLine skips the empty lines that keep the connection.
func replyLine(in *bufio.Reader) (string, error) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		if line != "" {
			return line, nil
		}
	}
}

// SnapshotBody reads "$<bytes>", or "$EOF:<mark>" with the mark at the end, too.
func SnapshotBody(header string, in *bufio.Reader) (io.Reader, error) {
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
	r.left -= int64(n)
	if errors.Is(err, io.EOF) && r.left > 0 {
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

// ErrSnapshot says that an RDB file is none, or not whole.
var ErrSnapshot = errors.New("not a whole RDB file")

// RDBSum checks an RDB file that is written to it: REDIS at its beginning, and behind its
// end mark the CRC-64 of all before, or zeros where Redis computes none.
type RDBSum struct {
	first  []byte // of the file, until there are five
	sum    uint64
	last   byte   // of what sum covers
	behind []byte // the last bytes, at most 8: the sum, if nothing follows
}

const (
	rdbMagic = "REDIS"
	RdbEnd   = 0xff
)

// rdbTable is Redis's polynomial, ad93d23594c935a9, reversed.
var rdbTable = crc64.MakeTable(0x95ac9329ac4bc9b5)

// Write never fails.
func (s *RDBSum) Write(b []byte) (int, error) {
	if missing := len(rdbMagic) - len(s.first); missing > 0 {
		s.first = append(s.first, b[:min(missing, len(b))]...)
	}

	s.behind = append(s.behind, b...)
	if done := len(s.behind) - 8; done > 0 {
		// The library inverts before and after, Redis does not.
		s.sum = ^crc64.Update(^s.sum, rdbTable, s.behind[:done])
		s.last = s.behind[done-1]
		s.behind = append(s.behind[:0], s.behind[done:]...)
	}

	return len(b), nil
}

// Check is nil when what was written is a whole file.
func (s *RDBSum) Check() error {
	if string(s.first) != rdbMagic || len(s.behind) < 8 || s.last != RdbEnd {
		return ErrSnapshot
	}

	switch binary.LittleEndian.Uint64(s.behind) {
	case s.sum, 0: // 0: rdbchecksum no
		return nil
	}
	return ErrSnapshot
}
