package operations

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
)

// ErrBusy reports that another process holds the claim, or died holding it less than 30 seconds ago. It
// wraps delivery.ErrUnavailable: the same call may succeed later.
var ErrBusy = fmt.Errorf("%w: another process is at it, or has died in the last 30 seconds", delivery.ErrUnavailable)

// How long a claim lasts after its last renewal, and how often it is renewed.
const (
	ClaimLasts   = 30 * time.Second
	claimRenewal = 5 * time.Second
)

// Exclusively calls do unless another process runs something under the same name. The context of do
// ends when this process loses its claim: do has to stop then, because another process may begin. When
// a process dies, its claim ends within 30 seconds. Only reporting's Redis user has the right to it.
//
// The error wraps ErrBusy, and do was not called, when another process is at work. Otherwise it joins
// do's error, that of a lost claim, and that of the release: it can be set although do returned nil.
func (l *Books) Exclusively(ctx context.Context, name string, do func(context.Context) error) error {
	key, token := l.Key("claim:"+name), rand.Text()
	err := l.set(ctx, key, change{to: token, lasts: ClaimLasts})
	if errors.Is(err, core.ErrConflict) {
		return fmt.Errorf("%w (%s)", ErrBusy, name)
	}

	if err != nil {
		return err
	}

	working, stop := context.WithCancelCause(ctx)
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		l.renew(working, stop, key, token)
	}()

	err = do(working)
	lost := context.Cause(working)
	wasLost := lost != nil && ctx.Err() == nil
	if wasLost {
		err = errors.Join(err, lost)
	}

	stop(nil)
	<-renewed

	released := l.set(context.WithoutCancel(ctx), key, change{from: token})
	if errors.Is(released, core.ErrConflict) {
		released = nil // the claim had ended by itself
	}

	return errors.Join(err, released)
}

// renew renews a claim until the context ends, and ends it when the claim is lost.
func (l *Books) renew(ctx context.Context, stop context.CancelCauseFunc, key, token string) {
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
		err := l.set(ctx, key, change{from: token, to: token, lasts: ClaimLasts})
		if err == nil {
			renewedAt = tried
			continue
		}

		isLost := errors.Is(err, core.ErrConflict) || time.Since(renewedAt) > ClaimLasts-claimRenewal
		if isLost && ctx.Err() == nil {
			stop(fmt.Errorf("%w: this process has lost its claim to do it alone: %w", delivery.ErrUnavailable, err))
			return
		}
	}
}
