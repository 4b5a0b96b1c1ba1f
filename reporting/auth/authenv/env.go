// Package authenv gives tests of the panel's pages people who may open them.
package authenv

import (
	"log/slog"
	"net/url"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/auth"
)

// Password is that of all users, whose hashes take as little time as is allowed.
const (
	Password = "doğru at pil zımba"
	hash     = "$argon2id$v=19$m=19456,t=2,p=1$uW2B4ayV4a5lJJjkCFadDQ$j+cH2JKrG4ufONuoUu8IBWE8PI2n4QN+p6dU2/J4hd4"
)

// Log is where nobody reads.
var Log = slog.New(slog.DiscardHandler)

var roles = map[string]auth.Roles{
	"operator": {auth.Operator}, "finance": {auth.Finance}, "both": {auth.Operator, auth.Finance}, "finance2": {auth.Finance},
}

// people are the users ayse (finance), deniz (operator), ece (both), cem and defne
// (closers), and a token for each name of roles.
var people = sync.OnceValue(func() (p struct {
	auth.People
	tokens map[string]string
}) {
	p.tokens = map[string]string{}
	var err error
	p.Users, err = auth.ParseUsers("ayse:finance:" + hash + "\ndeniz:operator:" + hash + "\nece:finance,operator:" + hash +
		"\ncem:finance,closer:" + hash + "\ndefne:finance,closer,operator:" + hash)
	if err != nil {
		panic(err)
	}

	for name, r := range roles {
		text, token, err := auth.NewToken(name, r)
		if err != nil {
			panic(err)
		}
		p.tokens[name], p.Tokens = text, append(p.Tokens, token)
	}

	return p
})

// People are those whom Gate lets in.
func People() auth.People { return people().People }

// As is the header of a program with a role: operator, finance, finance2 or both.
// A token needs no Redis.
func As(who string) string { return "Authorization: Bearer " + people().tokens[who] }

// Gate lets these people in.
func Gate(t testing.TB, l *ledger.Ledger) *auth.Gate {
	t.Helper()
	gate, err := auth.New(l, People(), auth.Settings{PasswordChecks: 2}, Log, prometheus.NewRegistry())
	testenv.Must(t, err)
	return gate
}

// SignIn gives the client's browser a session.
func SignIn(c *testenv.Client, user string) {
	c.T.Helper()
	c.Post("/login", url.Values{"user": {user}, "password": {Password}}).Want(303)
}
