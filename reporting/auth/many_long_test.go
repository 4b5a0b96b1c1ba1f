//go:build long

package auth

const wrongPasswords = 1000
