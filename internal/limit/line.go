package limit

import (
	"context"
	"errors"
)

// lineFactor is the bytes of memory for each byte of a line: the line, and the buffer from which it grew
// or the event that it becomes.
const lineFactor = 2

// NewLines makes a budget for lines, of size bytes.
func NewLines(size int64) *Budget {
	b := NewBudget(size)
	b.Patience = 0
	b.turn = make(chan struct{}, 1)
	b.turn <- struct{}{}
	return b
}

// Line is what the event has that a run is reading from its agent. It grows before its size is known, and
// only the agent knows when it ends. So lines may hold all bytes while each of them waits for more, for
// as long as agents are slow:
//
//   - All lines of an agent get at most half of the budget, so one slow agent cannot starve the others.
//   - One line at a time has the turn: it grows beside the budget, and gives back the bytes that it held.
//     So some line can always go on.
//
// A nil Line bounds nothing. Only one goroutine may use a Line.
type Line struct {
	of    *Budget
	agent string
	held  int64
	turn  bool
}

// Line returns the line of a run of an agent. b is a budget of NewLines.
func (b *Budget) Line(agent string) *Line {
	if b == nil {
		return nil
	}
	return &Line{of: b, agent: agent}
}

// TryGrow takes the bytes of a line of n bytes, if they are free now. The first Small bytes are free.
func (l *Line) TryGrow(n int64) bool {
	more := l.more(n)
	switch {
	case more <= 0:
		return true
	case l.turn:
		l.of.addBeside(more)
	case !l.of.try(l.agent, more, 0):
		return false
	}
	l.held += more
	return true
}

// Grow takes the bytes of a line of n bytes, and waits for them. The error is that of ctx.
func (l *Line) Grow(ctx context.Context, n int64) error {
	if l.TryGrow(n) {
		return nil
	}
	more := l.more(n)
	err := l.of.take(ctx, l.agent, more, 0)
	if errors.Is(err, errTurn) {
		l.of.addBeside(l.held)
		l.of.Give(l.agent, l.held)
		l.turn = true
		l.of.addBeside(more)
		err = nil
	}
	if err == nil {
		l.held += more
	}
	return err
}

// more returns how many bytes a line of n bytes lacks.
func (l *Line) more(n int64) int64 {
	if l == nil {
		return 0
	}
	return max(n-SmallBytes, 0)*lineFactor - l.held
}

// Release returns all bytes, and the turn: the event is in the hands of the database, or dropped.
func (l *Line) Release() {
	if l == nil {
		return
	}
	if l.turn {
		l.of.addBeside(-l.held)
		l.of.turn <- struct{}{}
	} else {
		l.of.Give(l.agent, l.held)
	}
	l.held, l.turn = 0, false
}

func (b *Budget) addBeside(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.beside += n
}
