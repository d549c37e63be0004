package task

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Position is a place in the log of a task: after the event Seq. A database that loses its newest
// commits, by a failover or a restore, gives their seqs to other events. The mark tells those from
// the lost ones.
type Position struct {
	Seq  Seq
	Mark Mark
}

// Mark is derived from the time of an event's commit. 0 is an unknown mark, and fits every event.
type Mark uint32

// MarkAt returns the mark of an event that was committed at a time.
func MarkAt(at time.Time) Mark {
	// The seconds between two commits would be enough for most failovers, microseconds are for all. The
	// multiplication spreads them over the upper half.
	return Mark(uint64(at.UnixMicro())*0x9e3779b97f4a7c15>>32) | 1
}

// Fits reports whether both marks may be of the same event.
func (m Mark) Fits(other Mark) bool { return m == 0 || other == 0 || m == other }

// Position is the place after the event.
func (e *Event) Position() Position { return Position{e.Seq, MarkAt(e.At)} }

// Position is the place after the task's last event. Its mark is unknown if that event was not
// folded.
func (t *Task) Position() Position {
	if t.last.Seq == t.LastSeq {
		return t.last
	}
	return Position{Seq: t.LastSeq}
}

// Append appends the id that clients resume with, such as 17-9f04a1c3. The position of the beginning
// has the id 0.
func (p Position) Append(b []byte) []byte {
	b = strconv.AppendInt(b, int64(p.Seq), 10)
	if p.Mark != 0 {
		b = append(b, '-')
		b = strconv.AppendUint(b, uint64(p.Mark), 16)
	}
	return b
}

// ParsePosition reads an id. It may lack the mark.
func ParsePosition(id string) (Position, error) {
	seq, mark, marked := strings.Cut(id, "-")
	n, err := strconv.ParseUint(seq, 10, 63)
	if err != nil {
		return Position{}, fmt.Errorf("event id: %w", err)
	}
	p := Position{Seq: Seq(n)}
	if marked {
		m, err := strconv.ParseUint(mark, 16, 32)
		if err != nil {
			return Position{}, fmt.Errorf("event id: %w", err)
		}
		p.Mark = Mark(m)
	}
	return p, nil
}
