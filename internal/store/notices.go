package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Reasons of notices.
const (
	NoticeCanceled = "canceled" // by a client or an operator
	NoticeExpired  = "expired"  // it was parked for too long
)

// Notice is what an agent is told about a task that was canceled, claimed for one try.
type Notice struct {
	Task   task.ID
	Agent  string
	Reason string
	Try    int           // from 1
	Age    time.Duration // since the cancel was requested
}

// NoticeDemand is the number of notices of an agent that a worker can deliver.
type NoticeDemand struct {
	Agent string
	Slots int
}

// noticeLease is how long a claim on a notice lasts. A try must be recorded before.
const noticeLease = time.Minute

// ClaimNotices claims due notices of canceled tasks. A claim ends by itself after a minute: then another worker may try.
func (s *Store) ClaimNotices(ctx context.Context, worker task.ID, want []NoticeDemand) ([]Notice, error) {
	arg := dbsqlc.NoticesClaimParams{Worker: uuid.UUID(worker), Lease: noticeLease}
	for _, d := range want {
		arg.Agents, arg.Slots = append(arg.Agents, d.Agent), append(arg.Slots, int32(d.Slots))
	}
	rows, err := s.q.NoticesClaim(ctx, s.hot, arg)
	if err != nil {
		return nil, translate("claim notices", err)
	}
	out := make([]Notice, len(rows))
	for i, r := range rows {
		out[i] = Notice{Task: task.ID(r.Task), Agent: r.Agent, Reason: r.Reason, Try: int(r.Tries), Age: r.Age}
	}
	return out, nil
}

// NoticeResult is the result of a try.
type NoticeResult struct {
	Task      task.ID
	Try       int
	Delivered bool
	Failed    bool // no further try
	Delay     time.Duration
	Error     string
}

// RecordNotice records a try, unless a later one has begun.
func (s *Store) RecordNotice(ctx context.Context, r NoticeResult) error {
	return translate("record a notice", s.unlocked(ctx, "notice", func() error {
		_, err := s.q.NoticeRecord(ctx, s.brief(s.hot), dbsqlc.NoticeRecordParams{
			Task: uuid.UUID(r.Task), Try: int32(r.Try), Ended: r.Delivered || r.Failed, Delivered: r.Delivered,
			Delay: r.Delay, Error: cleanName(r.Error),
		})
		return err
	}))
}

// DropNotice deletes the notice of a task whose agent wants none.
func (s *Store) DropNotice(ctx context.Context, id task.ID) error {
	return translate("drop a notice", s.unlocked(ctx, "notice", func() error {
		_, err := s.q.NoticeDrop(ctx, s.brief(s.hot), uuid.UUID(id))
		return err
	}))
}

// NoticeFacts is what the log says about the newest run of a task that its agent has begun.
type NoticeFacts struct {
	Attempt    task.Attempt
	Turn       int
	Checkpoint json.RawMessage // the newest of the task, or nil
	Metadata   json.RawMessage // of the request that canceled the task, or nil
}

// NoticeFacts reads the facts for a notice.
func (s *Store) NoticeFacts(ctx context.Context, id task.ID) (NoticeFacts, error) {
	facts, turns := NoticeFacts{Attempt: 1, Turn: 1}, 0
	err := s.alongLog(ctx, id, func(after, upto int64) error {
		r, err := s.q.NoticeFacts(ctx, s.hot, uuid.UUID(id), after, upto)
		if err != nil {
			return err
		}
		if r.Attempt > 0 {
			facts.Attempt, facts.Turn = task.Attempt(r.Attempt), 1+turns+int(r.Before)
		}
		turns += int(r.Turns)
		if r.Checkpoint != nil {
			facts.Checkpoint = r.Checkpoint
		}
		if r.Metadata != nil {
			facts.Metadata = r.Metadata
		}
		return nil
	})
	return facts, translate("read the facts of a notice", err)
}
