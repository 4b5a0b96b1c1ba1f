package ledger

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
)

// Check judges a configuration as far as that is possible without Redis: the
// form of the URL, the certificates' files, the environment and the number of
// partitions. It shows no part of a URL, which may hold a password.
func (c Config) Check() error {
	_, unknown := environmentLetter(c.Environment)
	var misfit error
	if c.Partitions < 0 || c.Partitions > delivery.MaxPartitions {
		misfit = fmt.Errorf("partitions: %d is not within 1 to %d", c.Partitions, delivery.MaxPartitions)
	}
	return errors.Join(unknown, misfit, c.checkURL())
}

func (c Config) checkURL() error {
	if many, err := redis.ParseClusterURL(c.URL); err == nil && len(many.Addrs) > 1 {
		_, err := c.TLS.secure(many.TLSConfig)
		return err
	}
	one, err := redis.ParseURL(c.URL)
	if err != nil {
		return fmt.Errorf("redis url: %w", withoutURL(err))
	}
	_, err = c.TLS.secure(one.TLSConfig)
	return err
}
