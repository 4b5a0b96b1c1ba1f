package core

import "vendorapi/internal/rules/broken"

// editLua changes what a script or a part of all has: a local function in front of a script takes the
// place of that of the parts, and one behind a part that of an earlier one.
func (c *Config) editLua(file, text string) string {
	const call = "local earlier_call = call\nlocal function call(command, ...)\n"
	text = c.editLuaOriginal(file, text)
	switch broken.Rule + " " + file {
	case "store-states/orders-are-accepted-only-for create_order": // every store is Active
		return call + `local found = earlier_call(command, ...)
			if command == 'MGET' and found[3] then found[3] = sub(found[3], 1, 1) .. '\3' .. sub(found[3], 3) end
			return found
			end
			` + text
	case "limits-and-idempotency/idempotency-scope-account-key idempotency": // the body is not compared
		return text + `
			local compared = earlier_success
			local function earlier_success(record, same, fingerprint, now, near)
			  return compared(record, same, record and sub(record, 1, 16) or same and sub(same, 61, 76), now, near)
			end
			`
	case "states/cancel-against-pickup-a-pickup cancel_order":
		return "local function order_reported() return 0 end\n" + text
	case "order-states/PickedUp cancel_order": // what was collected can be cancelled
		return "ARGV[7], ARGV[8] = '5', '9'\n" + text
	case "order-states/searching-assigned-pickingup-to-cancelled cancel_order":
		return "ARGV[7] = '0'\n" + text
	case "limits-and-idempotency/the-clock-is-redis-s-own clock":
		return text + `
			local once = clock
			local function clock() once() return once() end
			`
	case "limits-and-idempotency/sustained-excess-in-at-least count_minutes": // in four minutes
		return "ARGV[5] = '4'\n" + text
	case "fleets-and-operators/what-an-order-holds-already report_update": // an equal courier is another report
		return `local telling = order_courier
			local function order_courier(order, courier)
			  local whose = telling(order, courier)
			  if whose == 'same' then return 'corrected' end
			  return whose
			end
			` + text
	case "fleets-and-operators/what-is-no-step-forward report_update": // once more
		return "ARGV[8] = ARGV[8] + 1\n" + text
	case "webhooks/an-event-waits-at-most queue_replays":
		return call + `if command == 'ZADD' then return 0 end
			return earlier_call(command, ...)
			end
			` + text
	}
	return text
}
