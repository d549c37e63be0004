// Package judgetest compares the answers that clients got with stored data. A test's clients write every answer into
// a Ledger: acknowledgements, results, and events of streams. Check then compares the ledger with the database: no
// acknowledged message is missing or stored twice, and every shown event is in the log, in order and without a gap.
//
// The tests that inject faults (integration/faults, TestChaos) share it. It knows nothing of faults, bindings or
// versions: its terms are those of the log.
package judgetest

import (
	"maps"
	"slices"
	"sync"
)

// Ledger records the answers that the clients of a test got. Many goroutines may call its methods, also while Check
// reads it.
type Ledger struct {
	// Exports is the directory where servers export tasks that retention deletes; "" without exports.
	Exports string

	mu       sync.Mutex
	messages map[string]*message // by mark
	resumes  map[string]*message // by mark; stored ones were accepted
	readings []*Reading
	expected map[string]Outcome // by task
}

// message is a user's message, or a request by a resume URL, however often it was sent.
type message struct {
	fate fate
	task string // the task that it was stored in
}

type fate int

const (
	unknown fate = iota // no answer: stored once, or not at all
	stored
	refused
)

// Outcome is the expected end of a task.
type Outcome struct {
	State string
	// Chunks, if not zero, is the number of chunks in the artifact of the demo agent's stream: each begins with its
	// index in eight digits. Size is their size in bytes, if an event may have several.
	Chunks, Size int
}

// View is a task as an answer showed it.
type View struct {
	Seq   int64  // the event id that came with it; 0 if none did
	State string // submitted, working, input-required, …
	// Artifacts are the texts by artifact id; nil if the answer has no artifacts.
	Artifacts map[string]string
}

// Event is a status or an artifact chunk as a stream showed it.
type Event struct {
	Seq          int64
	State        string // of a status; empty for a chunk
	Text         string // of the status message, or of the chunk
	Artifact     string // id; empty for a status
	Append, Last bool   // of a chunk
	Final        bool   // the stream says that it ends here
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{messages: map[string]*message{}, resumes: map[string]*message{}, expected: map[string]Outcome{}}
}

// Sending records that a message will be sent for the first time. Its mark is the text of its last part, which no
// other message has. All tries carry the same idempotency key.
func (l *Ledger) Sending(mark string) { l.settle(l.messages, mark, message{}) }

// Stored records that the message was acknowledged, with its task.
func (l *Ledger) Stored(mark, task string) { l.settle(l.messages, mark, message{stored, task}) }

// Refused records that the message got an error that means: not stored, and never will be.
func (l *Ledger) Refused(mark string) { l.settle(l.messages, mark, message{fate: refused}) }

// Resumed begins the text of the status in which the turn of a resume ends. The mark follows, until the end of the line.
const Resumed = "resumed by "

// Resuming records that a request by a resume URL will be sent for the first time. Its body is a mark, which no other
// request has, and with which the agent ends the turn (Resumed).
func (l *Ledger) Resuming(mark string) { l.settle(l.resumes, mark, message{}) }

// Accepted records that the request counts, with its task.
func (l *Ledger) Accepted(mark, task string) { l.settle(l.resumes, mark, message{stored, task}) }

// Dead records that the first request with the mark found a URL that is not valid any more, and that there is no second.
func (l *Ledger) Dead(mark string) { l.settle(l.resumes, mark, message{fate: refused}) }

func (l *Ledger) settle(of map[string]*message, mark string, m message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of[mark] = &m
}

// Expect records the expected end of a task.
func (l *Ledger) Expect(task string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected[task] = o
}

// Follow begins the record of one client's answers about a task, in order: a stream with all its resumes, or a series
// of polls. A client that reads twice needs two.
func (l *Ledger) Follow(task string) *Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Reading{ledger: l, task: task}
	l.readings = append(l.readings, r)
	return r
}

// Reading is the record of one client about one task.
type Reading struct {
	ledger  *Ledger
	task    string
	entries []entry
	left    bool
	again   bool
}

// entry is one entry of a record: a view, an event, or a position from which the client resumed.
type entry struct {
	view  *View
	event *Event
	from  int64
}

// Saw records an answer, or the task at the beginning of a stream.
func (r *Reading) Saw(v View) { r.add(entry{view: &v}) }

// From records that the client, before its first answer, asked for all events after seq.
func (r *Reading) From(seq int64) { r.add(entry{from: seq}) }

// Read records an event of the stream.
func (r *Reading) Read(e Event) { r.add(entry{event: &e}) }

// Again records that the reading begins where a stream began again, because the database had lost an event.
func (r *Reading) Again() {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.again = true
}

// Left records that the client left before the end of its stream, for good.
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

// Doubt adds the ledger of clients that a database has lost commits of. Their messages may be stored or not, and their
// answers and tasks may be lost. Only the readings that began again after the loss (Reading.Again) have to equal the log.
func (l *Ledger) Doubt(other *Ledger) {
	other.mu.Lock()
	defer other.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark := range other.messages {
		l.messages[mark] = &message{}
	}
	for _, r := range other.readings {
		if r.again {
			l.readings = append(l.readings, &Reading{ledger: l, task: r.task, entries: r.entries, left: r.left})
		}
	}
}

// Count says how much a ledger contains.
type Count struct {
	Messages, Stored, Refused int
	Resumes, Accepted         int
	Readings, Views, Events   int
}

// Count returns how much has been recorded.
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
	c.Resumes = len(l.resumes)
	for _, r := range l.resumes {
		if r.fate == stored {
			c.Accepted++
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

// copy is the present ledger. The database must agree with it from now on.
func (l *Ledger) copy() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &Ledger{Exports: l.Exports, messages: maps.Clone(l.messages), resumes: maps.Clone(l.resumes), expected: maps.Clone(l.expected)}
	for _, r := range l.readings {
		// Entries never change, so a shorter slice is a copy.
		out.readings = append(out.readings, &Reading{task: r.task, entries: slices.Clip(r.entries), left: r.left})
	}
	return out
}
