package devclickhouse

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"vendorapi/internal/devclickhouse/libchdb"
)

// running knows the statements under way and can kill them. The library gives
// queries ids of its own and tells nobody, so each statement carries a mark, a
// comment, by which it is found among the engine's processes.
//
// The keeper is a connection of its own: it keeps the engine alive between
// requests, since closing the last connection stops it, and sends the KILL
// QUERY, since the statement's own connection is busy.
type running struct {
	log    *slog.Logger
	keeper *libchdb.Conn
	turn   sync.Mutex // a connection runs one statement at a time

	mu  sync.Mutex
	ids map[string]bool // of the clients
}

// killInterval is the time between two attempts to kill a statement. The first
// may come before the engine knows of it.
const killInterval = 50 * time.Millisecond

// watch kills the statement that carries mark when ctx ends before finished is
// called, which returns once nothing more is done to it. As with a server, two
// statements under way must not have the same id.
func (r *running) watch(ctx context.Context, id string) (mark string, finished func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids[id] {
		return "", nil, libchdb.NewException(codeSameQueryID, "QUERY_WITH_SAME_ID_IS_ALREADY_RUNNING",
			"Query with id = %s is already running", id)
	}
	r.ids[id] = true
	mark = "/* " + rand.Text() + " */"
	done := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		r.kill(id, mark, done)
	})
	return mark, func() {
		close(done)
		ended.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.ids, id)
	}, nil
}

// kill asks the engine to kill the statement until it is done.
func (r *running) kill(id, mark string, done <-chan struct{}) {
	began := time.Now()
	for {
		select {
		case <-done:
			r.log.Info("killed a query whose client had gone", "id", id, "after", time.Since(began))
			return
		default:
		}
		r.turn.Lock()
		// The KILL carries the mark, too, and must not find itself.
		_, err := r.keeper.Query("KILL QUERY WHERE query NOT LIKE 'KILL%' AND position(query, "+quote(mark)+") > 0 ASYNC", "Null", nil)
		r.turn.Unlock()
		if err != nil {
			r.log.Warn("cannot kill a query", "id", id, "error", err)
		}
		select {
		case <-done:
		case <-time.After(killInterval):
		}
	}
}
