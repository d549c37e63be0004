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
// A delivery of more than 64 KiB takes the bytes of what it reads from a budget before it reads it (room.go), and returns
// them when the delivery has ended. If the budget stays full, the claim is released without an attempt. Large deliveries
// have half of the slots, so small ones go on beside those that wait for memory.
//
// # A claim
//
//	claimed -> waiting     its host or its caller has all of its concurrent deliveries; before it delivers, it extends the
//	                       claim, which fails if the webhook was changed or its task purged meanwhile
//	        -> delivering  one POST after the other, while there are events and they succeed
//	        -> released    all was delivered, or a retry is due later, or the server stops, or there is no memory
//	        -> lost        it expired before the outcome was recorded; the delivery may be repeated
//
// # Goroutines
//
//	claim loop   one; woken by commits, by hints, by freed slots, when the next cursor is due, and
//	             by a poll
//	delivery     one per claim that is not waiting
//
// Package guard decides which addresses a webhook may have.
package push
