package core

import "github.com/redis/go-redis/v9"

// ProcessPipelineHook waits for the server's own disk alone.
func (h confirmed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	h.replicas = 0
	return h.ProcessPipelineHookOriginal(next)
}
