package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
)

// ErrBusy reports that another process is doing what one does at a time. It wraps
// delivery.ErrUnavailable: the same call may succeed later.
var ErrBusy = fmt.Errorf("%w: another process is at it, or has died in the last 30 seconds", delivery.ErrUnavailable)

// How long a claim lasts after its last renewal, and how often it is renewed.
const (
	claimLasts   = 30 * time.Second
	claimRenewal = 5 * time.Second
)

// Exclusively calls do while no other process does something under the same name; only reporting has
// the right to it. The context that do gets ends when the claim is lost, so that at most one process
// works at a time as long as do heeds it. Another process may begin 30 seconds after one has died.
// The error wraps ErrBusy when another process is at work, else it is do's.
func (l *Ledger) Exclusively(ctx context.Context, name string, do func(context.Context) error) error {
	key, token := l.Books.key("claim:"+name), rand.Text()
	err := l.Books.set(ctx, key, change{to: token, lasts: claimLasts})
	if errors.Is(err, ErrConflict) {
		return fmt.Errorf("%w (%s)", ErrBusy, name)
	}
	if err != nil {
		return err
	}

	working, stop := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		l.Books.renew(working, stop, key, token)
	}()
	err = do(working)
	if lost := context.Cause(working); lost != nil && ctx.Err() == nil {
		err = errors.Join(err, lost)
	}
	stop(nil)
	<-renewed

	released := l.Books.set(context.WithoutCancel(ctx), key, change{from: token})
	if errors.Is(released, ErrConflict) {
		released = nil // the claim had ended by itself
	}
	return errors.Join(err, released)
}

// renew renews a claim until the context ends, and ends it when the claim is lost.
func (l Books) renew(ctx context.Context, stop context.CancelCauseFunc, key, token string) {
	ticks := time.NewTicker(claimRenewal)
	defer ticks.Stop()

	renewedAt := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}

		tried := time.Now()
		err := l.set(ctx, key, change{from: token, to: token, lasts: claimLasts})
		if err == nil {
			renewedAt = tried
		}
		isLost := errors.Is(err, ErrConflict) || time.Since(renewedAt) > claimLasts-claimRenewal
		if isLost && ctx.Err() == nil {
			stop(fmt.Errorf("%w: this process has lost its claim to do it alone: %w", delivery.ErrUnavailable, err))
			return
		}
	}
}
