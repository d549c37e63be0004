package hub

import (
	"context"
	"log/slog"

	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Doorbell is a store.Listener for a process that changes a task and leaves again: it
// follows nothing itself, and tells the replicas when it is asked to ring.
type Doorbell struct {
	url    string
	notify *notifier
}

// NewDoorbell makes a doorbell that connects when it first rings.
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

// PushesDue says that webhooks have something to deliver.
func (d *Doorbell) PushesDue() { d.notify.pushesDue() }

// KeyRevoked implements store.Listener.
func (d *Doorbell) KeyRevoked(id string) { d.notify.send("k:" + id) }

// Ring sends the hints of everything that was committed since the last ring. When it
// fails nothing is lost: the replicas find it when they next look by themselves.
func (d *Doorbell) Ring(ctx context.Context) error {
	payloads := d.notify.take()
	if len(payloads) == 0 {
		return nil
	}
	conn := store.NewNotifier(d.url)
	defer conn.Close()
	return conn.Send(ctx, payloads)
}
