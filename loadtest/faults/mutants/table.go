package main

import (
	"slices"
	"time"

	"vendorapi/loadtest/faults/judge"
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
	caught []judge.Invariant
}

// edit is an exact replacement: old stands in the file exactly once.
type edit struct{ file, old, new string }

// short is enough for a round or two with every fault named.
const short = 45 * time.Second

var defects = slices.Concat(orderDefects, limitDefects, webhookDefects, exportDefects)

var orderDefects = []defect{
	{
		"answer-before-commit", "the gateway answers 201 although Redis has not said that it has the order",
		[]edit{{"internal/ledger/orders.go",
			"	reply, err := l.countCall(ctx, &c.call, c.Account)\n",
			"	reply, err := l.countCall(ctx, &c.call, c.Account)\n	if errors.Is(err, delivery.ErrUnavailable) {\n		return Created{Order: &c.order}, reply.quota, nil\n	}\n"}},
		"kill-redis,partition-gateway", short, []judge.Invariant{judge.LostOrder},
	},
	{
		"everysec", "Redis answers before its file is on the disk",
		[]edit{{"configs/redis.conf", "\nappendfsync always\n", "\nappendfsync everysec\n"}},
		"slow-fsync", short, []judge.Invariant{judge.LostOrder},
	},
	{
		"ack-before-commit", "a courier's update is acknowledged before it is committed",
		[]edit{{"worker/status/updates.go",
			"		orders, err := r.ledger.Orders(ctx, orderIDs(groups))\n",
			"		for _, g := range groups {\n			_ = r.ledger.Ack(ctx, ledger.RoleStatus, g.entries...)\n		}\n		orders, err := r.ledger.Orders(ctx, orderIDs(groups))\n"}},
		"crash-decide", short, []judge.Invariant{judge.NotEnded},
	},
	{
		"no-version-check", "a commit does not compare the version that it was decided on",
		[]edit{{"internal/ledger/lua/commit_order.lua", "if sub(head, 5, 12) ~= ARGV[1] then return 'conflict' end\n", ""}},
		"reply-lost-worker", short, []judge.Invariant{judge.IllegalMove, judge.VersionGap},
	},
	{
		"retry-as-new", "a creation whose reply was lost does not recognise itself when it is sent again",
		[]edit{{"internal/ledger/lua/create_order.lua",
			"if order and sub(order, 53, 60) == sub(ARGV[2], 2, 9) then return reply('recovered', order) end\n", ""}},
		"reply-lost", short, []judge.Invariant{judge.NotLinearizable, judge.UnknownOrder},
	},
	{
		"key-not-kept", "the idempotency key of a success is not kept",
		[]edit{{"internal/ledger/lua/create_order.lua",
			"if KEYS[7] then call('SET', KEYS[6], sub(ARGV[2], 10, 25) .. sub(ARGV[1], 2, 15), 'PX', '86400000') end\n", ""}},
		"none", short, []judge.Invariant{judge.NotLinearizable},
	},
	{
		"replay-of-today", "a replay shows the order as it is now",
		[]edit{{"internal/delivery/render.go",
			"	dst = appendText(dst, \"status\", Searching.String())\n", "	dst = appendText(dst, \"status\", o.Status.String())\n"}},
		"none", short, []judge.Invariant{judge.ReplayDiffers},
	},
	{
		"cancel-too-late", "an order can be cancelled after its pickup",
		[]edit{{"internal/ledger/lua/cancel_order.lua",
			"if status > tonumber(ARGV[7]) or order_reported(head) >= tonumber(ARGV[8]) then\n", "if status >= DELIVERED then\n"}},
		"none", short, []judge.Invariant{judge.IllegalMove},
	},
	{
		"unfinished-forgotten", "what a consumer had begun before a crash is never taken up again",
		[]edit{
			{"internal/ledger/feed.go", "byKey: make(map[string]room), redoAt: time.Now(), redoPause: minPause}", "byKey: make(map[string]room), redoPause: minPause}"},
			{"internal/ledger/feed.go", "			if err := r.claim(ctx, s); err != nil {\n", "			if err := r.claim(ctx, s); false && err != nil {\n"},
			{"internal/ledger/feed_reads.go", "			Consumer: r.Consumer, MinIdle: r.ClaimAfter,", "			Consumer: r.Consumer, MinIdle: r.ClaimAfter + 24*time.Hour,"},
		},
		"crash-decide,crash-export", short, []judge.Invariant{judge.PendingLeft, judge.NotEnded},
	},
}

var limitDefects = []defect{
	{
		"window-too-short", "a limit looks back over half of its window",
		[]edit{{"internal/ledger/lua/window.lua",
			"    tail1, at1 = advance(tail1, at1, now - span)\n", "    tail1, at1 = advance(tail1, at1, now - span / 2)\n"}},
		"none", short, []judge.Invariant{judge.OverLimit},
	},
	{
		"replays-uncounted", "a replay does not count",
		[]edit{{"internal/ledger/lua/create_order.lua",
			"  if name then return reply_counted(name, payload) end\n", "  if name then return reply(name, payload) end\n"}},
		"none", short, []judge.Invariant{judge.OverLimit},
	},
}

var webhookDefects = []defect{
	{
		"delivered-before-sent", "a webhook is settled as delivered while it is only being sent",
		[]edit{{"worker/dispatch/attempt.go",
			"	a := r.sender.send(ctx, d.Receiver.URL, header, body)\n",
			"	go r.sender.send(context.WithoutCancel(ctx), d.Receiver.URL, header, body)\n	a := answer{status: http.StatusOK}\n"}},
		"receivers,crash-send", short, []judge.Invariant{judge.EventLost},
	},
	{
		"lease-unfenced", "a worker that was away for longer than its lease still records",
		[]edit{{"internal/ledger/lua/record_attempts.lua",
			"  if leases[n] and tonumber(leases[n]) == tonumber(ARGV[i + 1]) then\n", "  if true then\n"}},
		"pause-worker,late-request", short, []judge.Invariant{judge.EventTwice, judge.ScheduleLeft},
	},
	{
		"events-at-once", "the events of one order do not wait for each other",
		[]edit{{"internal/ledger/lua/queue.lua",
			"    e.ready[#e.ready + 1] = '\\1' .. member .. pack('>I4', attempted + 1)\n    queued = attempted + 1\n",
			"    for s = attempted + 1, sequence do e.ready[#e.ready + 1] = '\\1' .. member .. pack('>I4', s) end\n    queued = sequence\n"}},
		"none", short, []judge.Invariant{judge.EventUnordered, judge.EventTwice},
	},
	{
		"body-of-today", "a webhook shows the order as it is when it is sent",
		[]edit{{"worker/dispatch/attempt.go",
			"		return d.Order.AppendStatus(dst, d.Version, false, true)\n", "		return d.Order.AppendStatus(dst, 0, false, true)\n"}},
		"none", short, []judge.Invariant{judge.EventWrong},
	},
	{
		"skipped-steps-untold", "a skipped step is filled in without an event of its own",
		[]edit{{"internal/ledger/lua/order.lua",
			"  for _ = 1, #statuses do\n    sequence = sequence + 1\n", "  sequence = sequence + #statuses - 1\n  for _ = 1, 1 do\n    sequence = sequence + 1\n"}},
		"none", short, []judge.Invariant{judge.EventLost},
	},
}

var exportDefects = []defect{
	{
		"export-acked-early", "the exporter acknowledges before ClickHouse has the rows",
		[]edit{{"reporting/export/export.go",
			"	if err := e.archive.Insert(ctx, &batch.Batch); err != nil {\n",
			"	_ = e.ledger.Ack(ctx, ledger.RoleExport, entries...)\n	if err := e.archive.Insert(ctx, &batch.Batch); err != nil {\n"}},
		"kill-clickhouse,crash-export", short, []judge.Invariant{judge.ClickHouseDiffers},
	},
	{
		"trim-unread", "streams are trimmed whoever has yet to read them",
		[]edit{{"internal/ledger/retention.go",
			"		if floor == \"\" {\n			continue\n		}\n", "		floor = fmt.Sprintf(\"%d-0\", time.Now().UnixMilli())\n"},
			{"internal/ledger/retention.go",
				"kind != kindTries && streamIDLess(horizon, floor) {\n			floor = horizon\n		}\n", "false {\n			floor = horizon\n		}\n"}},
		"kill-reporting,partition-export", short, []judge.Invariant{judge.EventLost, judge.ClickHouseDiffers},
	},
	{
		"older-version-wins", "of two rows of an order ClickHouse keeps the older one",
		[]edit{{"reporting/archive/tables.go",
			"func(o *Order) uint64 { return o.Version }", "func(o *Order) uint64 { return ^o.Version }"}},
		"none", short, []judge.Invariant{judge.ClickHouseDiffers},
	},
}
