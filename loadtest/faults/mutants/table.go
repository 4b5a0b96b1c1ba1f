package main

import (
	"slices"
	"time"

	"vendorapi/loadtest/faults/validate"
)

// defect is a mistake that somebody could make, and where the suite has to look
// to find it.
type defect struct {
	name  string
	says  string // what is wrong with it, in a few words
	edits []edit
	// faults are those under which it hurts, as the suite's -only takes them.
	faults   string
	duration time.Duration
	// caught are the invariants that it breaks; one of them must be found.
	caught []validate.Invariant
}

// edit replaces a piece of code. It stands exactly once in a function (or a method,
// Type.Name) of the folder, or, without a function, in the folder or file; white
// space in it matches any other. So the table survives what moves code without
// changing it.
type edit struct{ in, function, old, new string }

// short is enough for a round or two with every fault named.
const short = 45 * time.Second

var defects = slices.Concat(orderDefects, limitDefects, webhookDefects, exportDefects)

var orderDefects = []defect{
	{
		"answer-before-commit", "the gateway answers 201 although Redis has not said that it has the order",
		[]edit{{"internal/ledger", "Ledger.CreateOrder", `reply, err := l.countCall(ctx, &c.call, c.Account)`, `reply, err := l.countCall(ctx, &c.call, c.Account); if errors.Is(err, delivery.ErrUnavailable) { return Created{Order: &c.order}, reply.quota, nil }`}},
		"kill-redis,partition-gateway", short, []validate.Invariant{validate.LostOrder},
	},
	{
		"everysec", "Redis answers before its file is on the disk",
		[]edit{{"configs/redis.conf", "", `appendfsync always`, `appendfsync everysec`}},
		"slow-fsync", short, []validate.Invariant{validate.LostOrder},
	},
	{
		"ack-before-commit", "a courier's update is acknowledged before it is committed",
		[]edit{{"worker/status", "Role.settle", `orders, err := r.ledger.Orders(ctx, orderIDs(groups))`, `for _, g := range groups { _ = r.ledger.Ack(ctx, ledger.RoleStatus, g.entries...) }; orders, err := r.ledger.Orders(ctx, orderIDs(groups))`}},
		"crash-decide", short, []validate.Invariant{validate.NotEnded},
	},
	{
		"no-version-check", "a commit does not compare the version that it was decided on",
		[]edit{{"internal/ledger/lua/commit_order.lua", "", `if sub(head, 5, 12) ~= ARGV[1] then return 'conflict' end`, ``}},
		"reply-lost-worker", short, []validate.Invariant{validate.IllegalMove, validate.VersionGap},
	},
	{
		"retry-as-new", "a creation whose reply was lost does not recognise itself when it is sent again",
		[]edit{{"internal/ledger/lua/create_order.lua", "", `if order and sub(order, 53, 60) == sub(ARGV[2], 2, 9) then return reply('recovered', order) end`, ``}},
		"reply-lost", short, []validate.Invariant{validate.NotLinearizable, validate.UnknownOrder},
	},
	{
		"key-not-kept", "the idempotency key of a success is not kept",
		[]edit{{"internal/ledger/lua/create_order.lua", "", `call('SET', KEYS[6], sub(ARGV[2], 10, 25) .. sub(ARGV[1], 2, 15), 'PX', '86400000')`, ``}},
		"none", short, []validate.Invariant{validate.NotLinearizable},
	},
	{
		"replay-of-today", "a replay shows the order as it is now",
		[]edit{{"internal/delivery", "Order.AppendCreated", `appendText(dst, "status", Searching.String())`, `appendText(dst, "status", o.Status.String())`}},
		"none", short, []validate.Invariant{validate.ReplayDiffers},
	},
	{
		"cancel-too-late", "an order can be cancelled after its pickup",
		[]edit{{"internal/ledger/lua/cancel_order.lua", "", `status > tonumber(ARGV[7]) or order_reported(head) >= tonumber(ARGV[8])`, `status >= DELIVERED`}},
		"none", short, []validate.Invariant{validate.IllegalMove},
	},
	{
		"unfinished-forgotten", "what a consumer had begun before a crash is never taken up again",
		[]edit{
			{"internal/ledger", "newFeedReader", `redoAt: time.Now(),`, ``},
			{"internal/ledger", "feedReader.turn", `if err := r.claim(ctx, s); err != nil`, `if err := r.claim(ctx, s); false && err != nil`},
			{"internal/ledger", "feedReader.claim", `MinIdle: r.ClaimAfter,`, `MinIdle: r.ClaimAfter + 24*time.Hour,`},
		},
		"crash-decide,crash-export", short, []validate.Invariant{validate.PendingLeft, validate.NotEnded},
	},
}

var limitDefects = []defect{
	{
		"window-too-short", "a limit looks back over half of its window",
		[]edit{{"internal/ledger/lua/window.lua", "", `tail1, at1 = advance(tail1, at1, now - span)`, `tail1, at1 = advance(tail1, at1, now - span / 2)`}},
		"none", short, []validate.Invariant{validate.OverLimit},
	},
	{
		"replays-uncounted", "a replay does not count",
		[]edit{{"internal/ledger/lua/create_order.lua", "", `return reply_counted(name, payload)`, `return reply(name, payload)`}},
		"none", short, []validate.Invariant{validate.OverLimit},
	},
}

var webhookDefects = []defect{
	{
		"delivered-before-sent", "a webhook is settled as delivered while it is only being sent",
		[]edit{{"worker/dispatch", "Role.attempt", `a := r.sender.send(ctx, d.Receiver.URL, header, body)`, `go r.sender.send(context.WithoutCancel(ctx), d.Receiver.URL, header, body); a := answer{status: http.StatusOK}`}},
		"receivers,crash-send", short, []validate.Invariant{validate.EventLost},
	},
	{
		"lease-unfenced", "a worker that was away for longer than its lease still records",
		[]edit{{"internal/ledger/lua/record_attempts.lua", "", `if token ~= '' then return leased_until and tonumber(leased_until) == tonumber(token) end`, `if token ~= '' then return true end`}},
		"pause-worker,late-request", short, []validate.Invariant{validate.EventTwice, validate.ScheduleLeft},
	},
	{
		"events-at-once", "the events of one order do not wait for each other",
		[]edit{{"internal/ledger/lua", "queue_next", `e.ready[#e.ready + 1] = '\1' .. member .. pack('>I4', attempted + 1) queued = attempted + 1`, `for s = attempted + 1, sequence do e.ready[#e.ready + 1] = '\1' .. member .. pack('>I4', s) end queued = sequence`}},
		"none", short, []validate.Invariant{validate.EventUnordered, validate.EventTwice},
	},
	{
		"body-of-today", "a webhook shows the order as it is when it is sent",
		[]edit{{"worker/dispatch", "appendBody", `d.Order.AppendStatus(dst, d.Version, false, true)`, `d.Order.AppendStatus(dst, 0, false, true)`}},
		"none", short, []validate.Invariant{validate.EventWrong},
	},
	{
		"skipped-steps-untold", "a skipped step is filled in without an event of its own",
		[]edit{{"internal/ledger/lua", "append_changes", `for _ = 1, #statuses do sequence = sequence + 1`, `sequence = sequence + #statuses - 1 for _ = 1, 1 do sequence = sequence + 1`}},
		"none", short, []validate.Invariant{validate.EventLost},
	},
}

var exportDefects = []defect{
	{
		"export-acked-early", "the exporter acknowledges before ClickHouse has the rows",
		[]edit{{"reporting/export", "Exporter.export", `if err := e.archive.Insert(ctx, &batch.Batch); err != nil {`, `_ = e.ledger.Ack(ctx, ledger.RoleExport, entries...); if err := e.archive.Insert(ctx, &batch.Batch); err != nil {`}},
		"kill-clickhouse,crash-export", short, []validate.Invariant{validate.ClickHouseDiffers},
	},
	{
		"trim-unread", "streams are trimmed whoever has yet to read them",
		[]edit{
			{"internal/ledger", "Ledger.Trim", `if floor == "" { continue }`, `floor = fmt.Sprintf("%d-0", time.Now().UnixMilli())`},
			{"internal/ledger", "Ledger.Trim", `kind != kindTries && kind != kindUpdates && streamIDLess(horizon, floor)`, `false`},
		},
		"kill-reporting,partition-export", short, []validate.Invariant{validate.EventLost, validate.ClickHouseDiffers},
	},
	{
		"older-version-wins", "of two rows of an order ClickHouse keeps the older one",
		[]edit{{"reporting/archive", "", `func(o *Order) uint64 { return o.Version }`, `func(o *Order) uint64 { return ^o.Version }`}},
		"none", short, []validate.Invariant{validate.ClickHouseDiffers},
	},
}
