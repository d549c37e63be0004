package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Log is the log of one task: all of its events, in order.
type Log struct {
	// Begin is the task before the first event; the zero value is a submitted task without artifacts.
	Begin  View
	Events []Row
}

// Row is an event of a log.
type Row struct {
	Event
	Shown  bool   // in streams
	Mark   string // of a user's message
	Resume bool   // the note of one
	At     time.Time
	Until  time.Time // of a wait that ends a run; zero for all other events
	Early  bool      // of a wait: a message ends it
}

// brief tells how a log begins and ends, which says what the task was for and why it ended.
func (l *Log) brief() string {
	var b strings.Builder
	for i, e := range l.Events {
		if i < 2 || i >= len(l.Events)-4 {
			fmt.Fprintf(&b, "%d %s %q at %s; ", e.Seq, strings.TrimSpace(e.Mark+" "+e.State+" "+e.Artifact), e.Text[:min(len(e.Text), 60)], e.At.Format("15:04:05.000"))
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// upTo returns how many events have numbers up to seq, and whether the log reaches that far.
func (l *Log) upTo(seq int64) (int, bool) {
	n := sort.Search(len(l.Events), func(i int) bool { return l.Events[i].Seq > seq })
	return n, seq <= l.Last()
}

// Last returns the number of the last event.
func (l *Log) Last() int64 {
	if len(l.Events) == 0 {
		return 0
	}
	return l.Events[len(l.Events)-1].Seq
}

// shown returns the place of the next event that streams show.
func (l *Log) shown(at int) int {
	for at < len(l.Events) && !l.Events[at].Shown {
		at++
	}
	return at
}

// continues compares an event with the log at a place.
func (l *Log) continues(at int, e *Event) error {
	if at >= len(l.Events) {
		return fmt.Errorf("event %d, but the log ends with %d", e.Seq, len(l.Events))
	}
	return l.Events[at].differs(e)
}

// indexed checks that the chunks count from 0 to n-1. If size is not zero, an event may have several chunks of that size.
func (l *Log) indexed(n, size int) error {
	next := 0
	for _, e := range l.Events {
		if !e.Shown || e.Artifact == "" {
			continue
		}
		for chunk := range slices.Chunk([]byte(e.Text), cmp.Or(size, max(len(e.Text), 1))) {
			index, err := strconv.Atoi(string(chunk[:min(8, len(chunk))]))
			if err != nil || index != next {
				return fmt.Errorf("event %d is chunk %.8q, and should be %d", e.Seq, chunk, next)
			}
			next++
		}
	}
	if next != n {
		return fmt.Errorf("%d chunks, and should be %d", next, n)
	}
	return nil
}

// differs compares an event of a stream with the stored one at its place.
func (r *Row) differs(e *Event) error {
	got, want := *e, r.Event
	got.Final, want.Final = false, false
	if got.Seq == 0 {
		want.Seq = 0
	}
	if got == want {
		return nil
	}
	return fmt.Errorf("was told %+v, and the log continues with %+v", cut(got), cut(want))
}

func cut(e Event) Event {
	e.Text = e.Text[:min(len(e.Text), 40)]
	return e
}

// fold is a task after some of its events.
type fold struct {
	log  *Log
	at   int // number of events
	View     // without Seq
}

func (l *Log) start() *fold {
	f := &fold{log: l, View: View{State: cmp.Or(l.Begin.State, "submitted"), Artifacts: map[string]string{}}}
	maps.Copy(f.Artifacts, l.Begin.Artifacts)
	return f
}

func (f *fold) clone() *fold {
	c := *f
	c.Artifacts = maps.Clone(f.Artifacts)
	return &c
}

// forward applies the events up to a place.
func (f *fold) forward(to int) {
	for f.at < to && f.step() {
	}
}

// running reports whether the task will go on by itself.
func (f *fold) running() bool { return f.State == "submitted" || f.State == "working" }

// step applies the next event.
func (f *fold) step() bool {
	if f.at == len(f.log.Events) {
		return false
	}
	e := f.log.Events[f.at]
	f.at++
	switch {
	case e.State != "":
		f.State = e.State
	case e.Artifact != "" && e.Append:
		f.Artifacts[e.Artifact] += e.Text
	case e.Artifact != "":
		f.Artifacts[e.Artifact] = e.Text
	}
	return true
}

func (f *fold) differs(v *View) error {
	switch {
	case f.State != v.State:
		return fmt.Errorf("was told that it is %s, and the log says %s", v.State, f.State)
	case v.Artifacts != nil && !maps.Equal(f.Artifacts, v.Artifacts):
		return fmt.Errorf("was shown artifacts of %d bytes, and the log has %d, or other ones", size(v.Artifacts), size(f.Artifacts))
	}
	return nil
}

func size(artifacts map[string]string) (n int) {
	for _, text := range artifacts {
		n += len(text)
	}
	return n
}

// present is the task after its last event.
func (l *Log) present() *fold {
	f := l.start()
	for f.step() {
	}
	return f
}
