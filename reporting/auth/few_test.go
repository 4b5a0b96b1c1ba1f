//go:build !long

package auth

// wrongPasswords is how many strangers try; the long tests try more.
const wrongPasswords = 80
