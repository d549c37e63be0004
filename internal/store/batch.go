package store

import (
	"context"
	"sync"
	"time"
)

// batcher collects the items that callers queue and passes them to one writer at a time. As soon as
// the writer is free, it gets all queued items, up to max items and about batchBytes. A batcher
// never waits for more items.
type batcher[T interface{ size() int }] struct {
	flush func(ctx context.Context, items []T)
	max   int

	mu     sync.Mutex
	queue  []T
	closed bool
	wake   chan struct{}
}

// batchBytes keeps a flush far below PostgreSQL's limit of 1 GB for a message.
const batchBytes = 16 << 20

func newBatcher[T interface{ size() int }](size int, flush func(context.Context, []T)) *batcher[T] {
	return &batcher[T]{flush: flush, max: size, wake: make(chan struct{}, 1)}
}

// add queues an item. It returns false when the batcher has stopped.
func (b *batcher[T]) add(item T) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.queue = append(b.queue, item)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

func (b *batcher[T]) take(buf []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for bytes := 0; n < min(len(b.queue), b.max) && bytes < batchBytes; n++ {
		bytes += b.queue[n].size()
	}
	buf = append(buf[:0], b.queue[:n]...)
	rest := copy(b.queue, b.queue[n:])
	clear(b.queue[rest:])
	b.queue = b.queue[:rest]
	return buf
}

// run writes until stop is closed and the queue is empty. ctx bounds the writes.
func (b *batcher[T]) run(ctx context.Context, stop <-chan struct{}) {
	var buf []T
	for {
		buf = b.take(buf)
		if len(buf) > 0 {
			b.flush(ctx, buf)
			clear(buf)
			continue
		}
		select {
		case <-b.wake:
		case <-stop:
			b.mu.Lock()
			drained := len(b.queue) == 0
			b.closed = drained
			b.mu.Unlock()
			if drained {
				return
			}
		}
	}
}

// pause blocks before a write is retried: 20 ms at first, up to 1 s.
func pause(ctx context.Context, try int) error {
	d := min(20*time.Millisecond<<min(try, 6), time.Second)
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
