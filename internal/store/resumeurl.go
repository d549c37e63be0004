package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// MethodResume is the method of a request by resume URL in the audit log.
const MethodResume = "resume_url"

// Resumable returns the agent of a task whose turn can still be resumed by its URL, or whose run may still ask for that.
// Errors: task.NotFound, task.Terminal (the URL is dead; the text says why), task.Unavailable.
func (s *Store) Resumable(ctx context.Context, id task.ID, turn int) (agent string, err error) {
	row, err := s.q.ResumeState(ctx, s.api, uuid.UUID(id))
	if err != nil {
		return "", translate("read a resume URL", err)
	}
	state := task.State(row.State)
	switch {
	case state.Terminal():
		return row.Agent, task.Errorf(task.Terminal, "The task has ended.")
	case int(row.Turn) != turn, !state.Parked() && row.Kept:
		return row.Agent, task.Errorf(task.Terminal, "This link was used already, or the task went on without it.")
	case state.Parked() && !row.Asked:
		return row.Agent, task.Errorf(task.Terminal, "The task does not wait for this link.")
	case row.Expired && state.Parked():
		return row.Agent, task.Errorf(task.Terminal, "This link has expired.")
	}
	return row.Agent, nil
}

// Resume begins the next turn of a task that asks for input, or keeps the content until its run asks. Errors: task.NotFound,
// task.Terminal (the URL is dead; the text says why), task.Unavailable.
func (s *Store) Resume(ctx context.Context, n *task.ResumeRequest) error {
	leave, err := s.turns.enter(ctx, n.Task)
	if err != nil {
		return err
	}
	defer leave()
	sealed, err := s.sealResume(ctx, n)
	if err != nil {
		return err
	}
	v := s.View
	v.by = task.Caller{Method: MethodResume, Address: n.Address}
	note := &task.Event{Task: n.Task, Kind: task.EventRun, Run: &task.RunNote{Outcome: task.RunResume, Sealed: sealed}}
	arg := dbsqlc.TaskResumeParams{
		ID: uuid.UUID(n.Task), Turn: int32(n.Turn), Payload: EncodePayload(note), RequestID: uuid.UUID(n.ID),
		Audit: entries(v.audited(auditResumed, n.Task, n.Agent, "")),
	}
	repeated := false
	err = s.View.again(ctx, "resume", func() error {
		row, err := s.q.TaskResume(ctx, s.writes(), arg)
		if err == nil {
			s.resumed(note, &row)
			return nil
		}
		var pg *pgconn.PgError
		doubled := errors.As(err, &pg) && pg.Code == errDuplicate
		if !doubled && !errors.Is(err, pgx.ErrNoRows) {
			repeated = repeated || !lockedOut(err)
			return err
		}
		if repeated {
			if err := s.resumedBefore(ctx, n); !errors.Is(err, task.NotFound) {
				return err
			}
		}
		if _, err := s.Resumable(ctx, n.Task, n.Turn); err != nil {
			return err
		}
		return errChanged
	})
	return translate("resume", err)
}

// resumed announces a resume.
func (s *Store) resumed(note *task.Event, row *dbsqlc.TaskResumeRow) {
	note.Seq, note.At = task.Seq(row.Seq), row.At
	note.Run = &task.RunNote{Outcome: task.RunResume}
	if !row.Parked {
		s.committed(note)
		return
	}
	s.committed(note, &task.Event{Task: note.Task, Seq: note.Seq + 1, Kind: task.EventStatus, At: row.At, State: task.StateSubmitted})
	s.marked(row.Marked)
	if s.listener != nil {
		s.listener.Ready(row.Agent)
	}
}

// resumedBefore finds the resume of a first try that was committed before its connection died.
func (s *Store) resumedBefore(ctx context.Context, n *task.ResumeRequest) error {
	var row dbsqlc.ResumeFindRow
	err := s.proven(ctx, s.api, func(db dbsqlc.DBTX) (err error) {
		row, err = s.q.ResumeFind(ctx, db, uuid.UUID(n.Task), uuid.UUID(n.ID))
		return err
	})
	if err != nil {
		return translate("find resume", err)
	}
	if s.listener != nil {
		s.listener.Advanced(n.Task, task.Seq(row.LastSeq))
		s.listener.Ready(row.Agent)
	}
	return nil
}

// resumeHead is the first line of a sealed resume. The body follows as it came.
type resumeHead struct {
	Method      string `json:"method"`
	Query       string `json:"query,omitempty"`
	ContentType string `json:"content_type,omitempty"`
}

// resumePlace binds a sealed resume to the turn whose URL it came by.
func resumePlace(id task.ID, turn int) string { return fmt.Sprintf("%s resume %d", id, turn) }

func (s *Store) sealResume(ctx context.Context, n *task.ResumeRequest) ([]byte, error) {
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(resumeHead{n.Content.Method, n.Content.Query, n.Content.ContentType})
	if err != nil {
		return nil, translate("seal", err)
	}
	return ring.Seal(append(append(text, '\n'), n.Content.Body...), resumePlace(n.Task, n.Turn)), nil
}

// openResume opens the resume that a turn follows.
func (s *Store) openResume(ctx context.Context, id task.ID, turn int, sealed []byte) (*task.Resumed, error) {
	ring, err := s.sealing(ctx)
	if err != nil {
		return nil, err
	}
	text, err := ring.Open(sealed, resumePlace(id, turn-1))
	if err != nil {
		return nil, fmt.Errorf("what came by the resume URL: %w", err)
	}
	first, body, _ := bytes.Cut(text, []byte{'\n'})
	var head resumeHead
	if json.Unmarshal(first, &head) != nil {
		return nil, errors.New("what came by the resume URL is not as we write it") // do not show it
	}
	return &task.Resumed{Method: head.Method, Query: head.Query, ContentType: head.ContentType, Body: body}, nil
}
