package dashboard

import (
	"cmp"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// mostConcerns is how many the overview lists.
const mostConcerns = 25

// concern is something that an operator should look at.
type concern struct {
	State string // in one word
	Tone  string // bad or warn
	// Subject is what it is about, with a link to where it can be changed.
	Subject, Link string
	Note          string
	Since         time.Time // zero: not known
}

// concerns lists them, the worst first and of those the oldest.
func (s *seen) concerns() []concern {
	all := slices.Concat(s.programConcerns(), s.systemConcerns(), s.refusalConcerns(), s.endpointConcerns(), s.accountConcerns(), s.fleetConcerns())
	slices.SortStableFunc(all, func(a, b concern) int {
		return cmp.Or(cmp.Compare(a.Tone, b.Tone), a.Since.Compare(b.Since)) // "bad" comes before "warn"
	})
	return all
}

func (s *seen) systemConcerns() (list []concern) {
	if !s.history {
		list = append(list, concern{State: "away", Tone: "bad", Subject: "ClickHouse",
			Note: "It does not answer. What is live works on and what happens is kept for it; history, the search by store and the reports are unavailable."})
	}
	if s.stats != nil && s.stats.DeadLetters > 0 {
		list = append(list, concern{State: "lost", Tone: "bad", Subject: plural(s.stats.DeadLetters, "dead letter", "dead letters"),
			Link: "/dead-letters", Note: "entries that no worker could read or handle"})
	}
	for _, role := range roleNames {
		if lag := s.lags[role.role]; s.late(lag, role.patience) {
			list = append(list, concern{State: "behind", Tone: "warn", Subject: role.name + " worker", Since: lag.Oldest,
				Note: plural(lag.Entries, "entry waits", "entries wait")})
		}
	}
	return list
}

// refusalsShown is how long the overview tells of what couriers reported in vain.
const refusalsShown = 24 * time.Hour

// refusalConcerns count the refused updates of a day; late deliveries apart.
func (s *seen) refusalConcerns() (list []concern) {
	late := concern{State: "late", Tone: "bad", Note: "Delivered was reported after the order had ended: the amount may have been collected"}
	other := concern{State: "refused", Tone: "warn", Note: "in the last 24 hours; each with its reason in the list"}
	var lates, others int64
	for _, u := range s.refused { // the newest first
		switch {
		case s.at.Sub(u.At) > refusalsShown:
		case u.Late:
			lates, late.Since = lates+1, u.At
		default:
			others, other.Since = others+1, u.At
		}
	}
	if lates > 0 {
		late.Subject = plural(lates, "late delivery", "late deliveries")
		list = append(list, late)
	}
	if others > 0 {
		other.Subject = plural(others, "refused update", "refused updates")
		list = append(list, other)
	}
	for i := range list {
		list[i].Link = "/refused-updates"
		if len(s.refused) == readTraces {
			list[i].Note += "; there may be more"
		}
	}
	return list
}

func (s *seen) endpointConcerns() (list []concern) {
	names := make(accountNames, len(s.accounts))
	for _, a := range s.accounts {
		names[a.ID] = a.Name
	}
	for _, e := range s.endpoints {
		c := concern{Subject: "Webhooks of " + names.of(e.Account), Link: "/webhooks/" + e.Account.String(), Since: e.StateSince,
			State: string(e.State), Note: plural(e.Backlog, "event waits", "events wait")}
		switch {
		case e.State == ledger.EndpointUnreachable, e.State == ledger.EndpointGone:
			c.Tone = "bad"
		case e.BreakerOpen:
			c.Tone, c.State, c.Since = "warn", "breaker open", e.BreakerSince
		default:
			continue
		}
		switch {
		case e.Backlog == 0 || e.NextAttempt.IsZero():
		case e.NextAttempt.After(s.at):
			c.Note += ", next attempt " + layout.Ago(s.at, e.NextAttempt)
		default:
			c.Note += ", next attempt now"
		}
		list = append(list, c)
	}
	return list
}

func (s *seen) accountConcerns() (list []concern) {
	for _, a := range s.accounts {
		if a.ExcessSince.IsZero() {
			continue
		}
		note := "more than half of its requests are refused for its limits"
		if a.Suspended {
			note += "; the account is suspended"
		}
		list = append(list, concern{State: "in excess", Tone: "warn", Subject: a.Name, Link: "/accounts/" + a.ID.String(), Since: a.ExcessSince, Note: note})
	}
	return list
}

func (s *seen) fleetConcerns() (list []concern) {
	for _, f := range s.fleets {
		c := concern{Tone: "warn", Subject: f.Name, Link: "/fleets/" + f.ID.String()}
		switch {
		case f.Disabled:
			c.State, c.Note = "disabled", "every request of it is refused with "+string(delivery.CodeFleetDisabled)+", orders of its stores with "+string(delivery.CodeFleetSuspended)
		case f.Suspended:
			c.State, c.Note = "suspended", "orders of its stores are refused with "+string(delivery.CodeFleetSuspended)
		case f.Couriers == 0:
			c.State, c.Note = "no couriers", "orders of its stores are refused with "+string(delivery.CodeFleetUnavailable)
		default:
			continue
		}
		list = append(list, c)
	}
	return list
}
