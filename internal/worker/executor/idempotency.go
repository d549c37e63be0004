package executor

import (
	"cmp"
	"fmt"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// IdempotencyKey is the same for every attempt at one message, and unique on the server. It uses the internal id,
// because clients of A2A 0.1 choose the public one.
func (r *Run) IdempotencyKey() string { return cmp.Or(r.Key, idempotencyKey(r.ID, r.Turn)) }

func idempotencyKey(id task.ID, turn int) string { return fmt.Sprintf("%s:%d", id, turn) }
