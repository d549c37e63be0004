package a2asdk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/uuid"

	"github.com/holdfast-a2a/holdfast/agent"
)

// session emits the events of one run. Execute and Cancel may use it at the same time.
type session struct {
	run *agent.Run
	as  *agent.Run // the run as the executor sees it
	out agent.Emitter

	mu     sync.Mutex
	ended  bool
	status a2a.TaskStatus // the newest
	reply  *a2a.Message

	earlier  []agent.Artifact    // begun by earlier tries, and not yet by this one
	ids      map[string]string   // of this run's artifacts: the executor's to ours
	contents map[string]*content // by our ids
}

func newSession(run *agent.Run, out agent.Emitter, stored *agent.Task) *session {
	s := &session{run: run, as: keyed(run), out: out, ids: map[string]string{}, contents: map[string]*content{}}
	if stored == nil {
		return s
	}
	s.earlier = stored.Earlier
	for _, a := range stored.Artifacts {
		s.ids[a.ID] = a.ID
	}
	for _, all := range [][]agent.Artifact{stored.Artifacts, stored.Earlier} {
		for i := range all {
			s.contents[all[i].ID] = contentOf(&all[i])
		}
	}
	return s
}

func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// outcome is the result for Cleanup.
func (s *session) outcome(err error) a2a.SendMessageResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return nil
	case s.reply != nil:
		return s.reply
	}
	return &a2a.Task{ID: a2a.TaskID(s.as.TaskID), ContextID: s.as.ContextID, Status: s.status}
}

// emit emits an event, and reports whether the run is over.
func (s *session) emit(ctx context.Context, event a2a.Event) (over bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return true, nil
	}
	if err := s.check(event); err != nil {
		return true, fmt.Errorf("%w: %w", a2a.ErrInvalidAgentResponse, err)
	}
	switch v := event.(type) {
	case *a2a.Message:
		s.ended, err = true, s.message(ctx, v)
	case *a2a.TaskStatusUpdateEvent:
		err = s.setStatus(ctx, v.Status, v.Metadata)
	case *a2a.TaskArtifactUpdateEvent:
		err = s.artifact(ctx, v)
	case *a2a.Task:
		err = s.task(ctx, v)
	}
	if err != nil {
		s.ended = false
		return true, err
	}
	return s.ended, nil
}

// check refuses what the SDK's server refuses.
func (s *session) check(event a2a.Event) error {
	switch v := event.(type) {
	case *a2a.Message:
		if v == nil {
			return errors.New("the message is nil")
		}
		return nil // its ids have no effect
	case *a2a.TaskStatusUpdateEvent:
		if v == nil {
			return errors.New("the status update is nil")
		}
	case *a2a.TaskArtifactUpdateEvent:
		if v == nil || v.Artifact == nil {
			return errors.New("the artifact update has no artifact")
		}
		if len(v.Artifact.Parts) == 0 {
			return fmt.Errorf("artifact %q: parts: must hold at least one part", v.Artifact.ID)
		}
	case *a2a.Task:
		if v == nil {
			return errors.New("the task is nil")
		}
	default:
		return fmt.Errorf("the event is a %T", event)
	}
	info := event.TaskInfo()
	if info.TaskID != a2a.TaskID(s.as.TaskID) {
		return fmt.Errorf("the event is for task %q, and the run is of task %q", info.TaskID, s.as.TaskID)
	}
	if info.ContextID != s.as.ContextID {
		return fmt.Errorf("the event is for context %q, and the task is in context %q", info.ContextID, s.as.ContextID)
	}
	return nil
}

func (s *session) message(ctx context.Context, v *a2a.Message) error {
	m, err := toMessage(v)
	if err != nil {
		return err
	}
	err = s.out.Reply(ctx, m)
	if errors.Is(err, agent.ErrReply) {
		s.status = a2a.TaskStatus{State: a2a.TaskStateCompleted, Message: v}
		return s.out.Complete(ctx, m)
	}
	s.reply = v
	return err
}

func (s *session) setStatus(ctx context.Context, status a2a.TaskStatus, metadata map[string]any) error {
	var m agent.Message
	var err error
	if status.Message != nil {
		if m, err = toMessage(status.Message); err != nil {
			return fmt.Errorf("status: %w", err)
		}
	}
	if m.EventMetadata, err = toObject(metadata); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	s.status = status
	s.ended = status.State == a2a.TaskStateInputRequired || status.State == a2a.TaskStateAuthRequired || status.State.Terminal()
	switch status.State {
	case a2a.TaskStateSubmitted, a2a.TaskStateWorking:
		return s.out.Working(ctx, m)
	case a2a.TaskStateInputRequired:
		return s.out.AskInput(ctx, m)
	case a2a.TaskStateAuthRequired:
		return s.out.AskAuth(ctx, m)
	case a2a.TaskStateCompleted:
		return s.out.Complete(ctx, m)
	case a2a.TaskStateFailed:
		return s.out.Fail(ctx, m)
	case a2a.TaskStateRejected:
		return s.out.Reject(ctx, m)
	case a2a.TaskStateCanceled:
		return s.canceled(ctx, m)
	case a2a.TaskStateUnspecified:
	}
	return fmt.Errorf("%w: status.state: %q is not a state", a2a.ErrInvalidAgentResponse, status.State)
}

// canceled leaves the state to the worker if the client has canceled the task, and keeps the message. Only a client
// cancels a task: an executor that says so by itself has failed.
func (s *session) canceled(ctx context.Context, m agent.Message) error {
	if !s.asked(ctx) {
		if len(m.Parts) == 0 {
			m.Parts = agent.Say("The agent canceled the task.").Parts
		}
		return s.out.Fail(ctx, m)
	}
	s.ended = false // the run is over, but the task is not ended by it
	if len(m.Parts) > 0 || m.EventMetadata != nil {
		// If the run has ended meanwhile, the message comes too late, and the task is canceled anyway.
		_ = s.out.Working(context.WithoutCancel(ctx), m)
	}
	return errCanceled
}

var errCanceled = errors.New("the executor has canceled the task")

func (s *session) asked(ctx context.Context) bool {
	return ctx.Value(cancelKey{}) != nil || errors.Is(context.Cause(ctx), agent.ErrCanceled)
}

type cancelKey struct{}

func (s *session) artifact(ctx context.Context, v *a2a.TaskArtifactUpdateEvent) error {
	a, err := toArtifact(v.Artifact)
	if err != nil {
		return err
	}
	metadata, err := toObject(v.Metadata)
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	if a.ID == "" {
		a.ID = uuid.NewString() // a chunk needs one
	}
	a.ID = s.idOf(&a, v.Append)
	if have := s.contents[a.ID]; have != nil && v.Append {
		have.add(&a)
	} else {
		s.contents[a.ID] = contentOf(&a)
	}
	return s.out.Chunk(ctx, agent.Chunk{Artifact: a, Append: v.Append, Last: v.LastChunk, EventMetadata: metadata})
}

// idOf returns our id of an artifact. A new artifact with a random id takes that of the first artifact of the same name
// that earlier tries have begun, so that this try replaces it.
func (s *session) idOf(a *agent.Artifact, appends bool) string {
	if id, ok := s.ids[a.ID]; ok {
		return id
	}
	id := a.ID
	random := uuid.Validate(a.ID) == nil && !appends
	for i := range s.earlier {
		e := &s.earlier[i]
		if e.ID == a.ID || random && e.Name == a.Name && uuid.Validate(e.ID) == nil {
			id = e.ID
			s.earlier = append(s.earlier[:i:i], s.earlier[i+1:]...)
			break
		}
	}
	s.ids[a.ID] = id
	return id
}

// task emits how a snapshot differs from what is there.
func (s *session) task(ctx context.Context, v *a2a.Task) error {
	for i, artifact := range v.Artifacts {
		if artifact == nil || len(artifact.Parts) == 0 {
			return fmt.Errorf("%w: task.artifacts[%d].parts: must hold at least one part", a2a.ErrInvalidAgentResponse, i)
		}
		a, err := toArtifact(artifact)
		if err != nil {
			return fmt.Errorf("task.artifacts[%d]: %w", i, err)
		}
		if a.ID == "" {
			return fmt.Errorf("%w: task.artifacts[%d].artifactId: missing", a2a.ErrInvalidAgentResponse, i)
		}
		a.ID = s.idOf(&a, false)
		now := contentOf(&a)
		if s.contents[a.ID].equal(now) {
			continue
		}
		s.contents[a.ID] = now
		if err := s.out.Artifact(ctx, a); err != nil {
			return err
		}
	}
	return s.setStatus(ctx, v.Status, nil)
}
