// Package containers holds what docker-compose.yml promises as far as that can be
// seen without Docker's engine: that Compose's own library reads it, that every
// service has a health check, pinned images and no more rights than it needs, and
// that what stands beside it (the balancer's and Prometheus's targets, the runbook's
// commands) names its services and the ports that it publishes.
//
// It refuses to pull or build anything: whether the images exist and start is not
// checked here.
package containers
