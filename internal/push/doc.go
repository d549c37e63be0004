// Package push delivers events of tasks to webhooks.
//
// # Who is authoritative
//
// The database. Each configuration has a cursor in its task's log. The statement that writes an event marks the cursors
// that must pass it. A process claims due cursors, delivers, and records the outcome, fenced by the claim. It keeps no
// other record. When it dies, the claim expires, and another process redelivers events without a record. So delivery is
// at-least-once, and a redelivery has the id of the first attempt (Webhook-Id, jti).
//
// Reads of the log are pages of bounded bytes. If the database needs too long for one, the next is smaller. A single event
// that takes too long is a failure of the webhook, like an event that cannot be decoded: both end with a disabled webhook.
// An error of the whole database is no failure: it releases the claim for a second.
//
// Deliveries of one configuration are in the order of the log, one at a time. Different configurations are independent,
// within the fair shares of hosts and callers (type shares, which alone decides them).
//
// # Memory
//
// There is no budget of bytes: the number of deliveries times Options.MaxBody bounds them. A delivery reads small pages, or
// one event of at most MaxBody; the database leaves larger ones out. It folds a task until that exceeds MaxBody. So it has at
// most three times MaxBody while it renders (page, task, body). While it sends, which may take as long as the receiver likes,
// it has its body, and its task if the version shows it: each claim reads the log once. With 64 deliveries and 512 KiB that is
// 96 and 64 MiB, of the 512 MiB that `make memory` gives a server.
//
// A receiver gets a reference, which is the task without its content, instead of a larger body.
//
// # A delivery
//
//	claim.go     fills the free slots
//	deliver.go   walks from a claim through the deliveries of its webhook
//	read.go      reads the events, and the task if the version shows it
//	render.go    makes the body
//	send.go      makes one attempt; headers.go and sign.go say who made it
//	record.go    writes the outcome, extends a claim or releases it
//
// # A claim
//
//	claimed -> waiting     its host or its caller has all of its concurrent deliveries; before it delivers, it extends the
//	                       claim, which fails if the webhook was changed or its task purged meanwhile
//	        -> delivering  one POST after the other, while there are events and they succeed
//	        -> released    all was delivered, or a retry is due later, or the server stops
//	        -> lost        it expired before the outcome was recorded; the delivery may be repeated
//
// # Goroutines
//
//	claim loop   one; woken by commits, by hints, by freed slots, when the next cursor is due, and
//	             by a poll
//	delivery     one per claim that is not waiting
package push
