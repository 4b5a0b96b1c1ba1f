package delivery

import "log/slog"

// LogValue is the canonical form, in logs of every format.
func (id AccountID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// LogValue is the canonical form, in logs of every format.
func (id FleetID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// LogValue is the canonical form, in logs of every format.
func (id OrderID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// LogValue is the status's name, in logs of every format.
func (s Status) LogValue() slog.Value { return slog.StringValue(s.String()) }
