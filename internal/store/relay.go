package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	// relayPause is the least time between two relayed statuses of a call.
	relayPause = time.Second
	// mostRelayed is the size of the largest status that is relayed, as it is stored.
	mostRelayed = 64 << 10
)

// Relays are statuses of called tasks that a caller has to show.
type Relays struct {
	Parent task.ID
	calls  []relay // in the order of the calls
}

// relay is what a call has to show.
type relay struct {
	note  int64
	nth   int32
	seen  int64       // up to where the log of the called task was looked through
	event *task.Event // for the log of the caller; nil: there is nothing to show
}

// Relays returns what callers that wait have to show: of each call with relay the newest message of a status working, at most
// once a second. owned and shared name the agents whose tasks their owner, or the whole tenant, sees. Callers of shared agents
// show only tasks of shared agents. full says that there may be more than most.
func (s *Store) Relays(ctx context.Context, owned, shared []string, most int) (out []Relays, full bool, err error) {
	rows, err := s.q.RelaysDue(ctx, s.hot, dbsqlc.RelaysDueParams{
		Pause: relayPause, Owned: owned, Shared: shared, MaxRows: int32(most),
	})
	if err != nil {
		return nil, false, translate("find progress of called tasks", err)
	}
	for i := range rows {
		r := &rows[i]
		parent := task.ID(r.Parent)
		if len(out) == 0 || out[len(out)-1].Parent != parent {
			out = append(out, Relays{Parent: parent})
		}
		to := relay{note: r.Seq, nth: r.Nth, seen: r.Seen}
		if to.event, err = s.newest(ctx, r); err != nil {
			return nil, false, err
		}
		last := &out[len(out)-1]
		last.calls = append(last.calls, to)
	}
	return out, len(rows) == most, nil
}

// newest returns what a call has to show, or nil for nothing.
func (s *Store) newest(ctx context.Context, r *dbsqlc.RelaysDueRow) (*task.Event, error) {
	payload, err := s.q.RelayNewest(ctx, s.hot, dbsqlc.RelayNewestParams{MostBytes: mostRelayed, Task: r.Child, After: r.After, Seen: r.Seen})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, translate("read progress of a called task", err)
	}
	return relayed(r, payload), nil
}

// relayed returns the status of a called task as one of its caller: the same message, and metadata that say where it is from.
// nil: there is no message. A status that cannot be read must not stop the others; readers of its task get the error.
func relayed(r *dbsqlc.RelaysDueRow, payload []byte) *task.Event {
	e := &task.Event{Task: task.ID(r.Child), Kind: task.EventStatus, State: task.StateWorking}
	if err := decodePayload(e, payload, nil); err != nil || e.Message == nil {
		return nil
	}
	call := object(nil)
	call.str("id", r.CallID)
	call.str("agent", r.Agent)
	call.str("task", e.Task.String())
	call.raw("metadata", e.Metadata)
	metadata := object(nil)
	metadata.raw("call", append(call.b, '}'))
	return &task.Event{
		Task: task.ID(r.Parent), Kind: task.EventStatus, State: task.StateWorking, Message: e.Message, Metadata: append(metadata.b, '}'),
	}
}

// Relay writes what a caller has to show to its log, in one commit, if the caller still waits for these calls and no other
// process has written it. It waits for no lock: what it leaves is due again. It returns how many statuses it has written.
func (s *Store) Relay(ctx context.Context, r Relays) (int, error) {
	arg := dbsqlc.RelaysAppendParams{Parent: uuid.UUID(r.Parent), Pause: relayPause}
	for i := range r.calls {
		c := &r.calls[i]
		payload := ""
		if c.event != nil {
			payload = EncodePayload(c.event)
		}
		arg.Seqs, arg.Nths = append(arg.Seqs, c.note), append(arg.Nths, c.nth)
		arg.Seen, arg.Payloads = append(arg.Seen, c.seen), append(arg.Payloads, payload)
	}
	var rows []dbsqlc.RelaysAppendRow
	err := s.again(ctx, "relay", func() (err error) {
		// Safe to retry: the cursors are in the same commit.
		rows, err = s.q.RelaysAppend(ctx, s.hot, arg)
		return err
	})
	if err != nil {
		return 0, translate("relay progress", err)
	}
	var events []*task.Event
	for _, row := range rows {
		e := r.calls[slices.IndexFunc(r.calls, func(c relay) bool { return c.note == row.Note && c.nth == row.Nth })].event
		e.Seq, e.At = task.Seq(row.Seq), row.At
		e.Message.TaskID, e.Message.ContextID = row.PublicID, row.ContextID
		events = append(events, e)
	}
	if len(events) > 0 {
		s.committed(events...)
		s.marked(rows[0].Marked) // of the whole statement
	}
	return len(events), nil
}
