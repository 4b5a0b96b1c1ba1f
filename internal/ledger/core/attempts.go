package core

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
)

// Allow asks a spacing limit for up to n. When Redis's clock has gone back, the stored
// time lies further ahead than any use can put it; then it is reset.
func (l *Client) Allow(ctx context.Context, key string, limit redis_rate.Limit, n int) (*redis_rate.Result, error) {
	result, err := l.Rates.AllowAtMost(ctx, key, limit, n)
	longest := limit.Period*time.Duration(limit.Burst)/time.Duration(limit.Rate) + time.Second
	if err != nil || result.RetryAfter <= longest {
		return result, err
	}
	if err := l.Rates.Reset(ctx, key); err != nil {
		return nil, err
	}
	return l.Rates.AllowAtMost(ctx, key, limit, n)
}

type AttemptGuard struct {
	Key   string
	Limit redis_rate.Limit
}

// CountAttempt counts an attempt by each guard, until one refuses it.
func (l *Client) CountAttempt(ctx context.Context, guards ...AttemptGuard) (refusing string, wait time.Duration, err error) {
	for _, guard := range guards {
		result, err := l.Allow(ctx, guard.Key, guard.Limit, 1)
		if err != nil {
			return "", 0, Failed("counting an attempt to sign in", err)
		}
		if result.Allowed == 0 {
			return guard.Key, result.RetryAfter, nil
		}
	}

	return "", 0, nil
}
