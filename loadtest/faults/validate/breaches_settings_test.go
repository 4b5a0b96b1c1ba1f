package validate

import "testing"

// set logs a change of a setting of the first account with the status of the answer; 0: there was none.
func (e *env) set(value string, status int) {
	e.pass(0)
	e.saw(Operation{Kind: Set, Account: well, Setting: "limit", Value: value, Status: status})
}

func (e *env) get(value string) {
	e.pass(0)
	e.saw(Operation{Kind: Get, Account: well, Setting: "limit", Value: value, Status: 200})
}

func TestCheck_Settings(t *testing.T) {
	t.Parallel()

	checkAll(t, []breach{
		{"it is what it was set to", "", func(e *env) { e.set("1", 200); e.get("1"); e.set("2", 200); e.get("2") }},
		{"it is what it was before", SettingLost, func(e *env) { e.set("1", 200); e.set("2", 200); e.get("1") }},
		{"it is what nobody set it to", SettingLost, func(e *env) { e.set("1", 200); e.get("2") }},
		{"nothing was ever acknowledged", "", func(e *env) { e.get("1"); e.get("1") }},
		{"it changes by itself", SettingLost, func(e *env) { e.get("1"); e.get("2") }},
		{"a change without an answer happened late", "", func(e *env) { e.set("1", 200); e.set("2", 0); e.get("1"); e.get("2") }},
		{"a change without an answer never happened", "", func(e *env) { e.set("1", 200); e.set("2", 503); e.get("1") }},
		{"a refused change happened", SettingLost, func(e *env) { e.set("1", 200); e.set("2", 429); e.get("2") }},
		{"a read without an answer says nothing", "", func(e *env) {
			e.set("1", 200)
			e.saw(Operation{Kind: Get, Account: well, Setting: "limit"})
			e.get("1")
		}},
		{"the setting of another account", "", func(e *env) {
			e.set("1", 200)
			e.saw(Operation{Kind: Get, Account: sick, Setting: "limit", Value: "2", Status: 200})
		}},
		{"a secret that was issued is refused", SettingLost, func(e *env) {
			e.saw(Operation{Kind: Get, Account: well, Setting: "secret", Value: Refusal, Status: 401})
		}},
		{"a 500 to a clerk", ServerError, func(e *env) { e.set("1", 500) }},
		{"another setting", "", func(e *env) {
			e.set("1", 200)
			e.saw(Operation{Kind: Get, Account: well, Setting: "name", Value: "2", Status: 200})
		}},
	})
}

func TestCheck_Replays(t *testing.T) {
	t.Parallel()

	replay := func(e *env, account string, status int) {
		event := e.arrival("delivered", 2).EventID
		e.saw(Operation{Kind: Replay, Account: account, Event: event, Status: status})
	}

	again := func(e *env) {
		arrival := *e.arrival("delivered", 2)
		arrival.Began, arrival.Ended = e.now, e.now
		e.facts.Arrivals = append(e.facts.Arrivals, arrival)
	}

	checkAll(t, []breach{
		{"an acknowledged replay that did not come", ReplayLost, func(e *env) { replay(e, well, 200) }},
		{"an acknowledged replay that came", "", func(e *env) { replay(e, well, 200); again(e) }},
		{"an acknowledged replay that its receiver did not take", ReplayLost, func(e *env) {
			replay(e, well, 200)
			again(e)
			e.facts.Arrivals[len(e.facts.Arrivals)-1].Answered = 500
		}},
		{"a replay without an answer", "", func(e *env) { replay(e, well, 0) }},
		{"a replay to a receiver that was disturbed", "", func(e *env) { replay(e, sick, 200) }},
	})
}
