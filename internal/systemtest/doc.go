// Package systemtest holds the tests of the whole: the programs as they are
// shipped, as processes of their own, against a real Redis, through HTTP only;
// killed, stopped and started again. It also holds the shape of the project:
// which package may import what.
//
// It owns no code that anything else uses, and it refuses to know how the
// programs do what they do.
package systemtest
