// Package judge decides whether a server kept its promises. Clients write every answer into a Ledger: acknowledgements,
// results, and events of streams. Audit then compares the ledger with the logs of the tasks: no acknowledged message is
// missing or stored twice, and every shown event is in the log, in order and without a gap.
//
// Package judgetest reads the logs from the tables of Holdfast, for tests that inject faults (integration/faults). Package
// torture makes them from what any server of A2A answers. The judge knows nothing of faults, bindings or versions: its terms are
// those of the log.
package judge

import (
	"maps"
	"slices"
	"sync"
)

// Ledger records the answers that the clients of a test got. Many goroutines may call its methods, also while another
// reads its Copy.
//
// Its fields are for reading, when no client writes.
type Ledger struct {
	mu       sync.Mutex
	Messages map[string]*Message // by mark
	Resumes  map[string]*Message // by mark; stored ones were accepted
	Readings []*Reading
	Expected map[string]Outcome // by task
}

// Message is a user's message, or a request by a resume URL, however often it was sent.
type Message struct {
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
	Seq          int64  // 0 if the server does not number events
	State        string // of a status; empty for a chunk
	Text         string // of the status message, or of the chunk
	Artifact     string // id; empty for a status
	Append, Last bool   // of a chunk
	Final        bool   // the stream says that it ends here
}

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{Messages: map[string]*Message{}, Resumes: map[string]*Message{}, Expected: map[string]Outcome{}}
}

// Sending records that a message will be sent for the first time. Its mark is the text of its last part, which no
// other message has. All tries carry the same idempotency key.
func (l *Ledger) Sending(mark string) { l.settle(l.Messages, mark, Message{}) }

// Stored records that the message was acknowledged, with its task.
func (l *Ledger) Stored(mark, task string) { l.settle(l.Messages, mark, Message{stored, task}) }

// Refused records that the message got an error that means: not stored, and never will be.
func (l *Ledger) Refused(mark string) { l.settle(l.Messages, mark, Message{fate: refused}) }

// Resumed begins the text of the status in which the turn of a resume ends. The mark follows, until the end of the line.
const Resumed = "resumed by "

// Resuming records that a request by a resume URL will be sent for the first time. Its body is a mark, which no other
// request has, and with which the agent ends the turn (Resumed).
func (l *Ledger) Resuming(mark string) { l.settle(l.Resumes, mark, Message{}) }

// Accepted records that the request counts, with its task.
func (l *Ledger) Accepted(mark, task string) { l.settle(l.Resumes, mark, Message{stored, task}) }

// Dead records that the first request with the mark found a URL that is not valid any more, and that there is no second.
func (l *Ledger) Dead(mark string) { l.settle(l.Resumes, mark, Message{fate: refused}) }

func (l *Ledger) settle(of map[string]*Message, mark string, m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of[mark] = &m
}

// Expect records the expected end of a task.
func (l *Ledger) Expect(task string, o Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Expected[task] = o
}

// Follow begins the record of one client's answers about a task, in order: a stream with all its resumes, or a series
// of polls. A client that reads twice needs two.
func (l *Ledger) Follow(task string) *Reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Reading{ledger: l, Task: task}
	l.Readings = append(l.Readings, r)
	return r
}

// Reading is the record of one client about one task.
type Reading struct {
	Task    string
	Entries []Entry
	ledger  *Ledger
	left    bool
	again   bool
}

// Entry is one entry of a record: a view, an event, or a place from which the client reads on.
type Entry struct {
	View  *View
	Event *Event
	Opens bool  // the stream begins, with the view or with none
	From  int64 // the number after which it continues
}

// Saw records an answer, or the task at the beginning of a stream that numbers it.
func (r *Reading) Saw(v View) { r.add(Entry{View: &v}) }

// Opened records the beginning of a stream without numbers: the task as the stream shows it, or nil if it shows none.
func (r *Reading) Opened(v *View) { r.add(Entry{View: v, Opens: true}) }

// From records that the client, before its first answer, asked for all events after seq.
func (r *Reading) From(seq int64) { r.add(Entry{From: seq}) }

// Read records an event of the stream.
func (r *Reading) Read(e Event) { r.add(Entry{Event: &e}) }

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

func (r *Reading) add(e Entry) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.Entries = append(r.Entries, e)
}

// Doubt adds the ledger of clients that a database has lost commits of. Their messages may be stored or not, and their
// answers and tasks may be lost. Only the readings that began again after the loss (Reading.Again) have to equal the log.
func (l *Ledger) Doubt(other *Ledger) {
	other.mu.Lock()
	defer other.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for mark := range other.Messages {
		l.Messages[mark] = &Message{}
	}
	for _, r := range other.Readings {
		if r.again {
			l.Readings = append(l.Readings, &Reading{ledger: l, Task: r.Task, Entries: r.Entries, left: r.left})
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
	c := Count{Messages: len(l.Messages), Readings: len(l.Readings)}
	for _, m := range l.Messages {
		switch m.fate {
		case stored:
			c.Stored++
		case refused:
			c.Refused++
		case unknown:
		}
	}
	c.Resumes = len(l.Resumes)
	for _, r := range l.Resumes {
		if r.fate == stored {
			c.Accepted++
		}
	}
	for _, r := range l.Readings {
		for _, e := range r.Entries {
			switch {
			case e.View != nil:
				c.Views++
			case e.Event != nil:
				c.Events++
			}
		}
	}
	return c
}

// Copy is the present ledger. The logs must agree with it from now on.
func (l *Ledger) Copy() *Ledger {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &Ledger{Messages: maps.Clone(l.Messages), Resumes: maps.Clone(l.Resumes), Expected: maps.Clone(l.Expected)}
	for _, r := range l.Readings {
		// Entries never change, so a shorter slice is a copy.
		out.Readings = append(out.Readings, &Reading{Task: r.Task, Entries: slices.Clip(r.Entries), left: r.left})
	}
	return out
}
