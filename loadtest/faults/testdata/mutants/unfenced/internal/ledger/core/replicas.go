package core

import "github.com/redis/go-redis/v9"

// confirmBy lets nothing be confirmed, so that an old master goes on answering.
func confirmBy(int) func(*redis.Client) { return func(*redis.Client) {} }
