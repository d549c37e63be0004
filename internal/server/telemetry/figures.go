package telemetry

import (
	"sync"
	"time"
)

// Figures are about the whole cluster. One replica at a time reads them, and only that one exports them.
type Figures[T any] struct {
	keep time.Duration

	mu    sync.Mutex
	value T
	until time.Time // zero: nothing is known
}

// NewFigures makes figures that are exported for keep after they were read.
func NewFigures[T any](keep time.Duration) *Figures[T] { return &Figures[T]{keep: keep} }

// Set replaces the figures with a new reading.
func (f *Figures[T]) Set(value T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.until = value, time.Now().Add(f.keep)
}

// Forget drops the figures: they could not be read, or another replica reads them.
func (f *Figures[T]) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.until = time.Time{}
}

// get returns the figures, and whether this replica knows them. Old ones are not known: a queue that nobody can read must not
// look calm.
func (f *Figures[T]) get() (value T, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.value, time.Now().Before(f.until)
}
