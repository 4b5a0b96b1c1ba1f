// Package redisaccess holds the tests of who may do what in Redis: that every
// user of configs/redis-users.acl has exactly the rights that its program's source
// can use, that the programs' whole day works with them, what each of them is
// refused, and the same over TLS.
//
// It owns those tests and the reading of the source behind them. It refuses code
// of the product: that lies in package ledger, which asks, and in package stack,
// which starts a Redis with users.
package redisaccess
