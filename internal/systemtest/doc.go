// Package systemtest holds the tests of the whole: the programs as they are
// shipped, as processes, against a Redis of their own, through HTTP only.
//
// The gate has one scenario of a whole system and what nobody may do in it. In the
// long tier the programs are killed, upgraded, restored, driven by a browser and
// pushed to their limits.
package systemtest
