// Package push delivers events of tasks to webhooks.
//
// # Who is authoritative
//
// The database. Each configuration has a cursor in its task's log; the statement that writes
// an event marks the cursors that must pass it. A process claims due cursors, delivers, and
// records what came of it, fenced by the claim. It keeps no other record: when it dies, the
// claim runs out and another process delivers again what was not recorded. So every event is
// delivered at least once, and a repeated delivery has the id of the first (Webhook-Id, jti).
//
// Deliveries of one configuration are in the order of the log, one at a time. Those of
// different configurations know nothing of each other, but that a host takes only so many at
// a time: one that does not answer holds up its own. And no caller has more than half of the
// slots: who sets webhooks at many such hosts holds up their own. Nor have all hosts together that
// did not answer the last time.
//
// # A claim
//
//	claimed -> waiting     its host or its caller has as many deliveries under way as it may
//	        -> delivering  one POST after the other, while there are events and they succeed
//	        -> released    all was delivered, or the next attempt has a date, or the server stops
//	        -> lost        it ran out before it was recorded; what was sent may be sent again
//
// # Goroutines
//
//	claim loop   one; woken by commits, by hints, by freed slots, when the next cursor is due, and
//	             by a poll
//	delivery     one per claim that is not waiting
//
// Where a webhook may lead to is the business of package guard.
package push
