// Package judgetest holds what clients were told against what is stored. A test's clients
// write into a Ledger whatever reaches them: acknowledgements, answers, the events of
// their streams. Check then compares it with the database: nothing that was
// acknowledged is missing or there twice, and whatever was shown is in the log, in its
// order and without a gap.
//
// It is the one judge of the tests that break things (integration, TestChaos) and
// knows nothing of faults, transports or versions: its words are those of the log.
package judgetest

import (
	"maps"
	"slices"
	"sync"
)

// Ledger is what the clients of a test were told. Its methods may be called from many
// goroutines, also while Check reads it.
type Ledger struct {
	// Exports is the directory where servers write tasks to that retention deletes; "" where it deletes none.
	Exports string

	mu       sync.Mutex
	messages map[string]*message // by mark
	readings []*Reading
	expected map[string]Outcome // by task
}

// message is one message of a user, by however many tries it was sent.
type message struct {
	fate fate
	task string // that it was stored in
}

type fate int

const (
	unknown fate = iota // no answer came: stored once, or not at all
	stored
	refused
)

// Outcome is what must have become of a task when all is over.
type Outcome struct {
	State string
	// Chunks, if not zero, is how many chunks of the demo agent's stream the task's artifact holds: each begins with
	// its index in eight digits.
	Chunks int
}

// View is a task as an answer showed it.
type View struct {
	Seq   int64  // the position that came with it; 0 when none did
	State string // submitted, working, input-required, …
	// Artifacts are the texts by artifact id; nil when the answer shows no artifacts.
	Artifacts map[string]string
}

// Event is a status or an artifact chunk as a stream showed it.
type Event struct {
	Seq          int64
	State        string // of a status; empty for a chunk
	Text         string // of the status message, or of the chunk
	Artifact     string // id; empty for a status
	Append, Last bool   // of a chunk
	Final        bool   // the stream said that it ends here
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{messages: map[string]*message{}, expected: map[string]Outcome{}}
}

// Sending says that a message is about to be sent for the first time. Its mark is the text of its last part, and of no
// other message's. All tries of it carry the same idempotency key.
func (l *Ledger) Sending(mark string) { l.settle(mark, message{}) }

// Stored says that the message was acknowledged, as one of the task.
func (l *Ledger) Stored(mark, task string) { l.settle(mark, message{stored, task}) }

// Refused says that the message was answered with an error that means: not stored, and never will be.
func (l *Ledger) Refused(mark string) { l.settle(mark, message{fate: refused}) }

func (l *Ledger) settle(mark string, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[mark] = &m
}

// Expect says what must have become of a task when all is over.
func (l *Ledger) Expect(task string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected[task] = o
}

// Follow begins the record of what one client is told about a task, in the order in which it is told: a stream with all
// its resumes, or a row of answers. A client that reads twice is two.
func (l *Ledger) Follow(task string) *Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Reading{ledger: l, task: task}
	l.readings = append(l.readings, r)
	return r
}

// Reading is what one client was told about one task.
type Reading struct {
	ledger  *Ledger
	task    string
	entries []entry
	left    bool
}

// entry is one thing told: a view, an event, or the position from which the client asked to be told.
type entry struct {
	view  *View
	event *Event
	from  int64
}

// Saw records an answer, or the task with which a stream opened.
func (r *Reading) Saw(v View) { r.add(entry{view: &v}) }

// From records that the client, which has seen nothing yet, asked for all events after seq.
func (r *Reading) From(seq int64) { r.add(entry{from: seq}) }

// Read records an event of the stream.
func (r *Reading) Read(e Event) { r.add(entry{event: &e}) }

// Left records that the client went away before the end of its stream, and will not come back.
func (r *Reading) Left() {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.left = true
}

func (r *Reading) add(e entry) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.entries = append(r.entries, e)
}

// Count says how much a ledger holds.
type Count struct {
	Messages, Stored, Refused int
	Readings, Views, Events   int
}

// Count says how much has been recorded.
func (l *Ledger) Count() Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Count{Messages: len(l.messages), Readings: len(l.readings)}
	for _, m := range l.messages {
		switch m.fate {
		case stored:
			c.Stored++
		case refused:
			c.Refused++
		case unknown:
		}
	}
	for _, r := range l.readings {
		for _, e := range r.entries {
			switch {
			case e.view != nil:
				c.Views++
			case e.event != nil:
				c.Events++
			}
		}
	}
	return c
}

// copy is the ledger as it stands. What the database holds afterwards must agree with it.
func (l *Ledger) copy() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &Ledger{Exports: l.Exports, messages: maps.Clone(l.messages), expected: maps.Clone(l.expected)}
	for _, r := range l.readings {
		// Entries are never changed, so a shorter slice of the same is a copy.
		out.readings = append(out.readings, &Reading{task: r.task, entries: slices.Clip(r.entries), left: r.left})
	}
	return out
}
