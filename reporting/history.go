package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/archive"
)

// ownerOf is whom a ledger's database in ClickHouse names.
func ownerOf(l *ledger.Ledger) archive.Owner {
	return archive.Owner{Environment: l.Environment(), Ledger: l.ID()}
}

// checkHistory is nil when ClickHouse's database is the ledger's and nothing is missing there. It
// changes nothing. See archive.ErrOtherOwner and archive.ErrIncomplete.
func checkHistory(ctx context.Context, l *ledger.Ledger, a *archive.Archive) error {
	owned := a.CheckOwner(ctx, ownerOf(l))
	if owned != nil && !errors.Is(owned, archive.ErrIncomplete) {
		return owned
	}
	if err := a.Check(ctx); err != nil {
		return err
	}
	return owned
}

// histories are ClickHouse's database as two of its users reach it. Both are the same unless the
// settings name a user who only reads.
type histories struct {
	write, read *archive.Archive

	// Whether the database that each reaches is known to be this ledger's: then people may use it.
	writable, readable atomic.Bool
}

func openHistories(s archive.Settings, seenCertificate func(ends time.Time)) (*histories, error) {
	write, err := archive.Open(s)
	if err != nil {
		return nil, err
	}

	write.WatchCertificate(seenCertificate)
	h := &histories{write: write, read: write}
	if s.ReadURL == "" {
		return h, nil
	}

	h.read, err = archive.Open(s.ForReading())
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}

	h.read.WatchCertificate(seenCertificate)

	return h, nil
}

func (h *histories) close() error {
	err := h.write.Close()
	if h.read != h.write {
		err = errors.Join(err, h.read.Close())
	}
	return err
}

func (h *histories) useHead(read func(context.Context) (string, error)) {
	h.write.UseHead(read)
	if h.read != h.write {
		h.read.UseHead(read)
	}
}

// checkOwners looks whose database it is, with each user. The error names the first that cannot be used.
func (h *histories) checkOwners(ctx context.Context, l *ledger.Ledger) error {
	readable := h.read.CheckOwner(ctx, ownerOf(l))
	h.readable.Store(readable == nil)
	writable := readable
	if h.read != h.write {
		writable = h.write.CheckOwner(ctx, ownerOf(l))
	}

	h.writable.Store(writable == nil)

	if readable != nil {
		return readable
	}

	return writable
}

// migrateLock is the name of the lock under which one process at a time migrates.
const migrateLock = "migrate"

// migrate makes what is missing in ClickHouse's database, and notes there whose it is. It returns
// the names of what it applied. When nothing is missing it only reads.
func migrate(ctx context.Context, l *ledger.Ledger, a *archive.Archive) (applied []string, err error) {
	missing := checkHistory(ctx, l, a)
	if !errors.Is(missing, archive.ErrIncomplete) {
		return nil, missing
	}

	err = l.Books.Exclusively(ctx, migrateLock, func(ctx context.Context) error {
		applied, err = a.Migrate(ctx)
		if err != nil {
			return fmt.Errorf("%w; making it failed: %w", missing, err)
		}
		return a.Claim(ctx, ownerOf(l))
	})

	return applied, err
}

// How long the roles that need ClickHouse wait before they try again.
const (
	shortHistoryPause = 100 * time.Millisecond
	longHistoryPause  = 2 * time.Second
	fixHistoryPause   = 10 * time.Second // what a person has to fix first
)

// A historyWait repeats what opens the history until it succeeds, whatever ClickHouse answers: the
// pages that need only Redis are served meanwhile. It logs each trouble once.
type historyWait struct {
	log  *slog.Logger
	open func(context.Context) error
	// failed gets each error.
	failed func(error)
}

// run returns when open has succeeded, and otherwise the error of ctx.
func (h *historyWait) run(ctx context.Context) error {
	logged := ""
	for pause := shortHistoryPause; ; pause = min(2*pause, longHistoryPause) {
		err := h.open(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}

		if err == nil {
			return nil
		}

		h.failed(err)

		trouble := "unavailable" // the error's text names ports, which differ each time
		passes := errors.Is(err, delivery.ErrUnavailable)
		if !passes {
			trouble = err.Error()
			pause = fixHistoryPause
		}

		if trouble != logged && passes {
			h.log.Warn("waiting for ClickHouse", "error", err)
		}

		if trouble != logged && !passes {
			h.log.Error("ClickHouse cannot be used until this is fixed; it is tried again every "+fixHistoryPause.String(), "error", err)
		}

		logged = trouble

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// waitingForHistory is the error of /readyz while the history is not open.
func waitingForHistory(cause error) error {
	if cause == nil {
		return errors.New("waiting for ClickHouse")
	}
	return fmt.Errorf("waiting for ClickHouse: %w", cause)
}
