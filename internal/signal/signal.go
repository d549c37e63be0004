// Package signal announces commits, and notifications of agents, to the parts of one process.
//
// The store announces its commits. The hub relays those announcements to the other replicas as
// hints, and passes on their hints. The parts that act on a signal (workers, webhooks,
// authentication) subscribe to it. So the parts do not depend on each other.
//
// All parts must subscribe before the first part runs, because the lists of receivers are read
// without a lock.
//
// A signal is only a reason to look. Anyone who can log in to the database can send hints, and a
// hint can be lost. So receivers read the facts from the tables.
package signal

import "github.com/holdfast-a2a/holdfast/internal/task"

// Signal is one kind of announcement. The zero value has no receivers.
type Signal[T any] struct {
	relays, parts []func(T)
}

// Subscribe adds a receiver of signals from any process. The announcing goroutine calls receive,
// which must not block.
func (s *Signal[T]) Subscribe(receive func(T)) { s.parts = append(s.parts, receive) }

// Relay adds a receiver of announcements of this process only. It is called before the subscribers.
// send must not block.
func (s *Signal[T]) Relay(send func(T)) { s.relays = append(s.relays, send) }

// Subscribed reports whether a part of this process acts on the signal.
func (s *Signal[T]) Subscribed() bool { return len(s.parts) > 0 }

// Announce calls the relays and the subscribers with an announcement of this process.
func (s *Signal[T]) Announce(news T) {
	for _, send := range s.relays {
		send(news)
	}
	s.Hear(news)
}

// Hear calls the subscribers with an announcement of another process.
func (s *Signal[T]) Hear(news T) {
	for _, receive := range s.parts {
		receive(news)
	}
}

// Growth says that the log of a task has reached Seq.
type Growth struct {
	Task task.ID
	Seq  task.Seq
}

// Bus holds the signals of one process. It implements store.Listener. The zero value is ready for
// use. Do not copy a Bus.
type Bus struct {
	Events   Signal[[]*task.Event] // committed events; those of one task are in order
	Growth   Signal[Growth]        // logs that grew by events that are not in memory, here or in another process
	Queues   Signal[string]        // the agent with a row to claim; "": maybe any agent
	Cancels  Signal[task.ID]       // a running task that was asked to end
	Webhooks Signal[struct{}]      // there is something to deliver
	Calls    Signal[struct{}]      // a task has called others, or one with a lineage has ended or parked
	Removed  Signal[[]task.ID]     // tasks that were or may have been deleted
	Keys     Signal[string]        // the API key that was revoked, or the session that was ended; "": maybe any
	Notified Signal[task.ID]       // the task of a front, whose agent says that it has news
	// Missed says that hints of other processes may have been lost.
	Missed Signal[struct{}]
	// Lost says that this process was declared dead: its runs are fenced.
	Lost Signal[struct{}]
}

// Committed implements store.Listener.
func (b *Bus) Committed(evs []*task.Event) { b.Events.Announce(evs) }

// Advanced implements store.Listener.
func (b *Bus) Advanced(id task.ID, seq task.Seq) { b.Growth.Announce(Growth{Task: id, Seq: seq}) }

// Ready implements store.Listener.
func (b *Bus) Ready(agent string) { b.Queues.Announce(agent) }

// CancelWanted implements store.Listener.
func (b *Bus) CancelWanted(id task.ID) { b.Cancels.Announce(id) }

// PushesDue implements store.Listener.
func (b *Bus) PushesDue() { b.Webhooks.Announce(struct{}{}) }

// CallsDue implements store.Listener.
func (b *Bus) CallsDue() { b.Calls.Announce(struct{}{}) }

// Gone implements store.Listener.
func (b *Bus) Gone(ids []task.ID) { b.Removed.Announce(ids) }

// KeyRevoked implements store.Listener.
func (b *Bus) KeyRevoked(id string) { b.Keys.Announce(id) }

// LeaseLost announces that this process was declared dead.
func (b *Bus) LeaseLost() { b.Lost.Announce(struct{}{}) }
