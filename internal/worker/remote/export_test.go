package remote

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Open returns how many requests of a worker are under way.
func (a *API) Open(id task.ID) int {
	a.registry.mu.Lock()
	defer a.registry.mu.Unlock()
	if w := a.registry.all[id]; w != nil {
		return w.open
	}
	return 0
}

// Renewed reports whether a heartbeat of a worker has renewed a lease of one of its runs after a time.
func (a *API) Renewed(id task.ID, after time.Time) bool {
	a.registry.mu.Lock()
	defer a.registry.mu.Unlock()
	for _, n := range a.registry.all[id].lent {
		if n.Until.After(after) {
			return true
		}
	}
	return false
}

// Parted reports whether a worker is gone.
func (a *API) Parted(id task.ID) bool {
	a.registry.mu.Lock()
	defer a.registry.mu.Unlock()
	return a.registry.all[id].gone
}
