// Package delivery is the domain: orders, stores, fleets, accounts, the states
// they pass through, and every rule of the Delivery Vendor API that can be
// judged without asking anyone (spec, "Resources and their fields" and "States
// and transitions").
//
// It owns the vocabulary of the whole project: identifiers, statuses, the table
// of moves, money, phone numbers, places, and the one list of error codes with
// their HTTP statuses.
//
// It refuses infrastructure: no Redis, no HTTP, no SQL, no clock of its own.
// Callers pass the time in.
package delivery
