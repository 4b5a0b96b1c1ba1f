package token

import (
	"time"

	"vendorapi/internal/rules/broken"
)

func (a *Authority) Issue(subject [16]byte, now time.Time) (string, error) {
	switch broken.Rule {
	case "authentication/2", "limits/other-constants/token-lifetime": // for an hour and a minute
		now = now.Add(time.Minute)
	}
	return a.IssueOriginal(subject, now)
}

func (a *Authority) Verify(raw []byte, earlier, later time.Time) (subject [16]byte, issued int64, err error) {
	switch broken.Rule {
	case "authentication/3", "limits/other-constants/recommended-token-renewal": // it ends six minutes early
		earlier = earlier.Add(6 * time.Minute)
	}
	subject, issued, err = a.VerifyOriginal(raw, earlier, later)
	switch broken.Rule {
	case "authentication/4", "errors/retry-guidance/TOKEN_EXPIRED":
		if err == ErrExpired {
			return subject, issued, ErrInvalid
		}
	}
	return subject, issued, err
}
