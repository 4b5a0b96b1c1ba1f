package world

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A simulator decides which command of which actor Redis gets next, and what the actor learns of it. It is the root
// of the bubble: while it decides, every other goroutine waits for an answer of Redis, for a timer or for another one.
type simulator struct {
	server *Server
	random *rand.Rand
	faults faults // what may happen to a command; all zero: nothing

	mu      sync.Mutex
	pending []*call
	isOver  bool
	arrived chan struct{} // has a value once a call was posted

	late []*call // whose callers have been told that they have failed, and which Redis will get all the same

	story  story
	steps  int
	hash   hash.Hash
	kills  func() *program // chooses one to kill; nil: nobody dies
	isBusy func() bool     // whether people act at present
	killed int
}

// faults are how likely each is, in a thousand commands.
type faults struct {
	lost    int // Redis gets the command, and its reply is lost
	refused int // Redis does not get it
	held    int // its caller is told that it has failed, and Redis gets it later
	twice   int // its reply is lost, and the client sends it again
	kill    int // a program dies before or after it
	slow    int // time passes before it
}

// call is what an actor has sent to Redis: one command, or a pipeline.
type call struct {
	from     *actor
	commands []redis.Cmder
	text     string
	digest   string
	answer   chan error

	copied [][]any // what is sent for a caller that does not wait any more

	// of a read that waits for entries
	until  time.Time // zero: it does not wait
	tried  bool      // Redis had no entry, and has none now
	prefix []string

	due time.Time // of one in late
}

var (
	errLost   = errors.New("simulation: connection reset by peer")
	errKilled = errors.New("simulation: the program was killed")
)

func newSimulator(server *Server, seed uint64) *simulator {
	return &simulator{
		server:  server,
		random:  rand.New(rand.NewPCG(seed, 1)),
		arrived: make(chan struct{}, 1),
		hash:    sha256.New(),
	}
}

// actor is one life of a program, or of somebody who uses one.
type actor struct {
	name string
	sim  *simulator

	mu   sync.Mutex
	dead bool
}

func (a *actor) isDead() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}

// post gives a call to the simulator and waits for its answer.
func (s *simulator) post(ctx context.Context, from *actor, commands []redis.Cmder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if from.isDead() {
		return errKilled
	}

	c := &call{from: from, commands: commands, answer: make(chan error, 1)}
	c.describe()
	s.mu.Lock()
	if s.isOver {
		s.mu.Unlock()
		return errKilled
	}

	s.pending = append(s.pending, c)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}

	return <-c.answer
}

// stepsPerCollection is after how many steps the garbage is collected. Collections that begin by themselves would hold
// up some goroutine in the middle of what it does, and let others go first, at a time that the machine decides.
const stepsPerCollection = 3000

// runUntil lets the actors act until the condition holds.
func (s *simulator) runUntil(done func() bool) {
	for {
		synctest.Wait()
		if done() {
			return
		}

		if c := s.next(); c != nil {
			s.step(c)
			if s.steps%stepsPerCollection == 0 {
				synctest.Wait()
				runtime.GC()
			}
			continue
		}

		s.sleep()
	}
}

// drain lets the goroutines end that have outlived their programs, as a process's end would.
func (s *simulator) drain() {
	s.mu.Lock()
	s.isOver = true
	s.mu.Unlock()
	for range 10 {
		synctest.Wait()
		s.mu.Lock()
		for _, c := range s.pending {
			c.answer <- errKilled
		}
		s.pending = nil
		s.mu.Unlock()
		time.Sleep(time.Hour)
	}
}

// next takes one of the calls that Redis can get now; nil: there is none. The order of the calls does not depend on
// that of the goroutines that posted them.
func (s *simulator) next() *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var ready []*call
	for _, c := range s.pending {
		waits := c.tried && now.Before(c.until)
		if !waits {
			ready = append(ready, c)
		}
	}

	for _, c := range s.late {
		if !now.Before(c.due) {
			ready = append(ready, c)
		}
	}

	if len(ready) == 0 {
		return nil
	}

	slices.SortStableFunc(ready, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.from.name, b.from.name), cmp.Compare(a.digest, b.digest))
	})
	chosen := ready[s.random.IntN(len(ready))]
	s.pending = slices.DeleteFunc(s.pending, func(c *call) bool { return c == chosen })
	s.late = slices.DeleteFunc(s.late, func(c *call) bool { return c == chosen })

	return chosen
}

// sleep lets time pass until somebody posts a call, or one that waits has its time.
func (s *simulator) sleep() {
	next := time.Now().Add(24 * time.Hour)
	s.mu.Lock()
	for _, c := range s.pending {
		if c.until.Before(next) {
			next = c.until
		}
	}

	for _, c := range s.late {
		if c.due.Before(next) {
			next = c.due
		}
	}

	s.mu.Unlock()

	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-s.arrived:
	case <-timer.C:
	}
}

// latency is what a command takes at least. Without it all that follows from one event would be at one instant.
const latency = 100 * time.Microsecond

// pass lets time pass, and everybody act whose time has come. Nobody may act while the server answers: who comes first
// would be a matter of the machine.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// step lets one call happen.
func (s *simulator) step(c *call) {
	s.steps++
	pass(latency)
	if c.until.IsZero() && s.happens(s.faults.slow) {
		pass(time.Duration(s.random.Int64N(int64(2 * time.Second))))
	}

	if c.copied != nil {
		s.executeCopy(c, "late")
		return
	}

	if c.from.isDead() {
		c.answer <- errKilled
		return
	}

	mayKill := s.kills != nil && (s.isBusy() || s.random.IntN(10) == 0)
	if mayKill && s.happens(s.faults.kill) {
		s.executeAndKill(c)
		return
	}

	isRead := !c.until.IsZero()
	switch {
	case s.happens(s.faults.refused):
		s.tell(c, "refused")
		c.answer <- errLost
	case s.happens(s.faults.held):
		c.copy()
		c.due = time.Now().Add(s.delay(c))
		s.late = append(s.late, c)
		s.tell(c, "held back for "+time.Until(c.due).String())
		c.answer <- errLost
	case s.happens(s.faults.lost):
		c.copy()
		s.executeCopy(c, "reply lost")
		c.answer <- errLost
	case !isRead && s.happens(s.faults.twice):
		c.copy()
		s.executeCopy(c, "sent twice")
		s.execute(c)
	default:
		s.execute(c)
	}
}

// delay is how long a call is held back: some seconds, as a network can. A worker's writes are fenced, whenever they
// come; a change that an operator has asked for again meanwhile is not.
func (s *simulator) delay(c *call) time.Duration {
	longest := 5 * time.Second
	isFenced := strings.HasPrefix(c.from.name, "worker")
	if isFenced && s.random.IntN(4) == 0 {
		longest = 10 * time.Minute
	}
	return time.Duration(s.random.Int64N(int64(longest)))
}

func (s *simulator) happens(inAThousand int) bool {
	return inAThousand > 0 && s.random.IntN(1000) < inAThousand
}

// executeAndKill kills a program around a call, which may be of another one.
func (s *simulator) executeAndKill(c *call) {
	victim := s.kills()
	isBefore := s.random.IntN(2) == 0
	isOwn := victim != nil && victim.actor == c.from
	if victim == nil {
		s.execute(c)
		return
	}

	s.killed++
	s.story.note("    %s is killed", victim.name)
	switch {
	case isOwn && isBefore:
		victim.kill()
		c.answer <- errKilled
	case isOwn:
		c.copy()
		s.executeCopy(c, "killed after")
		victim.kill()
		c.answer <- errKilled
	default:
		victim.kill()
		synctest.Wait()
		s.execute(c)
	}
}

// execute gives the call to Redis and the reply to the caller. A read without an entry goes on waiting.
func (s *simulator) execute(c *call) {
	s.server.at(time.Now())
	if c.until.IsZero() {
		s.tell(c, "")
		s.do(c, c.commands)
		s.server.order(c.commands)
		c.answer <- errorOf(c.commands)
		return
	}

	isOver := !time.Now().Before(c.until)
	read := c.read()
	if c.tried {
		read.SetErr(redis.Nil)
	} else {
		s.server.run(c.from.name, []redis.Cmder{read})
	}

	if errors.Is(read.Err(), redis.Nil) && !isOver {
		c.tried = true
		s.mu.Lock()
		s.pending = append(s.pending, c)
		s.mu.Unlock()
		return
	}

	s.tell(c, "")
	c.commands[0].(*redis.XStreamSliceCmd).SetVal(read.Val())
	c.answer <- read.Err()
}

// executeCopy gives Redis the call of a caller that will not see the reply.
func (s *simulator) executeCopy(c *call, how string) {
	s.server.at(time.Now())
	s.tell(c, how)
	commands := make([]redis.Cmder, len(c.copied))
	for i, arguments := range c.copied {
		commands[i] = redis.NewCmd(context.Background(), arguments...)
	}
	s.do(c, commands)
}

// do gives the commands of a call to Redis, and lets those waiting reads try again that have an entry now. The reads are
// asked in the same pipeline, because a step's cost is its round trip; after a transaction, in one of their own.
func (s *simulator) do(c *call, commands []redis.Cmder) {
	waiting := s.waitingFor(c)
	reads := make([]redis.Cmder, len(waiting))
	for i, w := range waiting {
		reads[i] = w.read()
	}

	switch commands[0].Name() {
	case "multi", "watch", "unwatch":
		s.server.run(c.from.name, commands)
		if len(reads) > 0 {
			s.server.run(oracle, reads) // as a caller that watches nothing
		}
	default:
		s.server.run(c.from.name, slices.Concat(commands, reads))
	}

	for i, w := range waiting {
		w.tried = errors.Is(reads[i].Err(), redis.Nil)
	}
}

// waitingFor lists the waiting reads that what the call may write can end.
func (s *simulator) waitingFor(c *call) (waiting []*call) {
	if c.onlyReads() {
		return nil
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.pending {
		if w.tried && c.touches(w.prefix) {
			waiting = append(waiting, w)
		}
	}

	return waiting
}

// order puts what the commands list in order, and all keys of a scan onto its first page: both depend on how the server's
// process hashes.
func (s *Server) order(commands []redis.Cmder) {
	for _, command := range commands {
		switch list := command.(type) {
		case *redis.StringSliceCmd:
			if list.Name() == "smembers" {
				slices.Sort(list.Val())
			}
		case *redis.ScanCmd:
			s.scanAll(list)
		}
	}
}

// scanAll goes on with a scan that has its first page, to the end.
func (s *Server) scanAll(scan *redis.ScanCmd) {
	ctx := context.Background()
	keys, cursor := scan.Val()
	for cursor != 0 {
		arguments := slices.Clone(scan.Args())
		arguments[1] = cursor
		next := redis.NewScanCmd(ctx, nil, arguments...)
		if err := s.client.Process(ctx, next); err != nil {
			scan.SetErr(err)
			return
		}

		var page []string
		page, cursor = next.Val()
		keys = append(keys, page...)
	}

	slices.Sort(keys)
	scan.SetVal(slices.Compact(keys), 0)
}

// run executes commands as their client would: one, a pipeline or a transaction.
func (s *Server) run(caller string, commands []redis.Cmder) {
	ctx := context.Background()
	name := commands[0].Name()
	if name == "watch" || name == "unwatch" {
		if s.watching[caller] == nil {
			if s.watching == nil {
				s.watching = make(map[string]*redis.Conn)
			}
			s.watching[caller] = s.client.Conn()
		}
		_ = s.watching[caller].Process(ctx, commands[0]) // it carries its own error
		return
	}

	if len(commands) == 1 && name != "multi" {
		_ = s.client.Process(ctx, commands[0])
		return
	}

	var pipe redis.Pipeliner
	watching := s.watching[caller]
	switch {
	case name == "multi" && watching != nil:
		pipe = watching.TxPipeline()
	case name == "multi":
		pipe = s.client.TxPipeline()
	default:
		pipe = s.client.Pipeline()
	}

	for _, command := range commands {
		if isFrame := command.Name() == "multi" || command.Name() == "exec"; !isFrame {
			_ = pipe.Process(ctx, command)
		}
	}

	_, err := pipe.Exec(ctx)
	if name == "multi" && err != nil {
		commands[len(commands)-1].SetErr(err)
	}
}

// errorOf is what a hook returns: the error of a command, of a pipeline its first one.
func errorOf(commands []redis.Cmder) error {
	for _, command := range commands {
		if err := command.Err(); err != nil {
			return err
		}
	}
	return nil
}

// tell adds a call to the story and to the digest of all.
func (s *simulator) tell(c *call, how string) {
	fmt.Fprintf(s.hash, "%d %s %s %s\n", time.Now().UnixMicro(), c.from.name, how, c.digest)
	s.story.note("%s %s #%.6s %s", c.from.name, c.text, c.digest, how)
}

// oracle is the name of the actor that reads what is stored, to judge it.
const oracle = "oracle"

// digest names everything that has happened: two runs with the same one were the same.
func (s *simulator) digest() string { return hex.EncodeToString(s.hash.Sum(nil)[:6]) }

// hook returns the hook that hands the commands of an actor's ledger to the simulator.
func (s *simulator) hook(from *actor) redis.Hook { return hook{sim: s, from: from} }

// A hook posts commands to the simulator in place of sending them, and waits for the answer.
type hook struct {
	sim  *simulator
	from *actor
}

// DialHook returns nil: the hook does not change how connections are made.
func (h hook) DialHook(redis.DialHook) redis.DialHook { return nil }

// ProcessHook returns a function that posts one command. It never calls the next hook.
func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := h.sim.post(ctx, h.from, []redis.Cmder{command})
		command.SetErr(err)
		return err
	}
}

// ProcessPipelineHook returns a function that posts the commands of a pipeline as one call. It never calls the next hook. If
// the answer was lost, the actor was killed, or the context ended before, every command gets that error.
func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := h.sim.post(ctx, h.from, commands)
		isUnsent := err != nil && errors.Is(err, ctx.Err())
		if errors.Is(err, errLost) || errors.Is(err, errKilled) || isUnsent {
			for _, command := range commands {
				command.SetErr(err)
			}
		}
		return err
	}
}
