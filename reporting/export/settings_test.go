package export

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each key has its range.
func TestSettings_HaveTheirRanges(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		key    string
		change func(s *Settings)
		isFine bool
	}{
		{"", func(*Settings) {}, true},
		{"export.batch", func(s *Settings) { s.Batch = 0 }, false},
		{"export.batch", func(s *Settings) { s.Batch = 1 }, true},
		{"export.batch", func(s *Settings) { s.Batch = 10_000 }, true},
		{"export.batch", func(s *Settings) { s.Batch = 10_001 }, false},
		{"export.interval", func(s *Settings) { s.Interval = 99 * time.Millisecond }, false},
		{"export.interval", func(s *Settings) { s.Interval = 100 * time.Millisecond }, true},
		{"export.interval", func(s *Settings) { s.Interval = time.Minute }, true},
		{"export.interval", func(s *Settings) { s.Interval = time.Minute + 1 }, false},
		{"export.claim_after", func(s *Settings) { s.ClaimAfter = time.Second - 1 }, false},
		{"export.claim_after", func(s *Settings) { s.ClaimAfter = time.Second }, true},
		{"export.audit_days", func(s *Settings) { s.AuditDays = -1 }, false},
		{"export.audit_days", func(s *Settings) { s.AuditDays = 0 }, true},
		{"export.audit_days", func(s *Settings) { s.AuditDays = 36_500 }, true},
		{"export.audit_days", func(s *Settings) { s.AuditDays = 36_501 }, false},
	} {
		s := Settings{Batch: 1000, Interval: time.Second, ClaimAfter: time.Minute, AuditDays: 400}
		c.change(&s)

		err := s.Validate()

		if (err == nil) != c.isFine || err != nil && !strings.HasPrefix(fmt.Sprint(err), c.key+": want ") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
