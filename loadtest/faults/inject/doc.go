// Package inject does harm to a running system from outside: it cuts, slows and
// loses what programs say to each other, stops their processes at a chosen
// instant and tears the end of a server's append-only file.
//
// It owns the means and their undoing: every harm has a way back, and what it
// starts (proxies) ends with it. It refuses to choose: what is done to
// whom and when is the suite's business. No program needs a hook for it.
package inject
