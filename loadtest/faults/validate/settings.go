package validate

import "slices"

// setting is what one setting of an account can be, as far as its only client knows.
type setting struct {
	known  bool
	value  string   // that was acknowledged or read last
	unsure []string // of changes without an answer, which may happen at any time, or never
}

// checkSettings: a setting is what it was set to, until it is changed again.
func (c *check) checkSettings() {
	settings := make(map[name]*setting)
	for _, op := range c.clerkOps {
		if op.Kind == Replay {
			continue
		}

		key := name{op.Account, op.Setting}
		s := settings[key]
		if s == nil {
			s = new(setting)
			settings[key] = s
		}

		if op.Kind == Get && op.Value == Refusal {
			c.about(op.Account, SettingLost, "the %s that was issued last was refused", op.Setting)
			continue
		}

		if op.Kind == Get && op.OK() && s.excludes(op.Value) {
			c.about(op.Account, SettingLost, "the setting %s was %q, and is %q", op.Setting, s.value, op.Value)
		}

		s.take(op)
	}
}

// excludes reports whether the setting cannot be this.
func (s *setting) excludes(value string) bool {
	return s.known && s.value != value && !slices.Contains(s.unsure, value)
}

func (s *setting) take(op *Operation) {
	switch {
	case op.OK():
		s.known, s.value = true, op.Value
	case op.Kind == Set && op.Unknown():
		s.unsure = append(s.unsure, op.Value)
	}
}

// checkReplays: an event whose replay was acknowledged came again, unless its receiver was disturbed.
func (c *check) checkReplays() {
	for _, op := range c.clerkOps {
		if op.Kind != Replay || !op.OK() || c.accounts[op.Account].Disturbed {
			continue
		}

		cameAgain := slices.ContainsFunc(c.facts.Arrivals, func(a Arrival) bool {
			return a.EventID == op.Event && a.accepted() && !a.Began.Before(op.Start)
		})
		if !cameAgain {
			c.about(op.Event, ReplayLost, "its replay was answered %d, and it did not come again", op.Status)
		}
	}
}
