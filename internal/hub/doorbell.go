package hub

import (
	"context"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Doorbell is a store.Listener for a short-lived process, such as a command that changes a task. It
// has no subscribers. It collects hints and sends them to the replicas on Ring.
type Doorbell struct {
	url    string
	notify *notifier
}

// NewDoorbell returns a doorbell. It opens no connection before Ring.
func NewDoorbell(url string) *Doorbell {
	return &Doorbell{url: url, notify: newNotifier(Options{URL: url, Log: slog.New(slog.DiscardHandler)})}
}

// Committed implements store.Listener.
func (d *Doorbell) Committed(evs []*task.Event) { d.notify.events(evs) }

// Advanced implements store.Listener.
func (d *Doorbell) Advanced(id task.ID, seq task.Seq) { d.notify.advanced(id, seq) }

// Ready implements store.Listener.
func (d *Doorbell) Ready(agent string) { d.notify.ready(agent) }

// CancelWanted implements store.Listener.
func (d *Doorbell) CancelWanted(id task.ID) { d.notify.cancel(id) }

// PushesDue implements store.Listener.
func (d *Doorbell) PushesDue() { d.notify.pushesDue() }

// CallsDue implements store.Listener. The duty looks every second.
func (d *Doorbell) CallsDue() {}

// Gone implements store.Listener.
func (d *Doorbell) Gone(ids []task.ID) { d.notify.removed(ids) }

// KeyRevoked implements store.Listener.
func (d *Doorbell) KeyRevoked(id string) { d.notify.send("k:" + id) }

// Ring sends the hints of all commits since the last Ring. If it fails, no event is lost: the
// replicas find the events at their next poll.
func (d *Doorbell) Ring(ctx context.Context) error {
	payloads := d.notify.take()
	if len(payloads) == 0 {
		return nil
	}
	conn := store.NewNotifier(d.url)
	defer conn.Close()
	return conn.Send(ctx, payloads)
}
