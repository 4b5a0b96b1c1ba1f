//go:build long

package access

const wrongPasswords = 1000
