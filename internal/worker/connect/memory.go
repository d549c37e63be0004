package connect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// The bounds of a page of the run API.
const (
	maxEntries = 1000
	maxBytes   = 16 << 20
)

// Memory is what the agent may know of its task and context. Each call is a request, unless it says something else.
type Memory struct{ r *run }

// ask sends a request of the run API until the server answers it.
func (m *Memory) ask(ctx context.Context, x *exchange) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.r.life, func() { cancel(context.Cause(m.r.ctx)) })()
	x.path, x.token = runAPI+x.path, m.r.token
	var pause backoff
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := m.r.w.client.do(ctx, x)
		switch code, _ := status(err); {
		case err == nil:
			return nil
		case code == http.StatusGone, code == http.StatusUnauthorized: // the token is good for as long as the run
			m.r.stop(executor.ErrLeaseLost, nil)
			return executor.ErrLeaseLost
		case code == 0, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= http.StatusInternalServerError:
			pause.wait(ctx, err)
		default:
			return err
		}
	}
}

// History returns the messages of the conversation before the run's message, oldest first.
func (m *Memory) History(ctx context.Context) ([]task.Message, error) {
	said, err := m.said(ctx, executor.OfTask, executor.Bounds{Progress: true})
	var out []task.Message
	for i := range said {
		if said[i].Message != nil {
			out = append(out, *said[i].Message)
		}
	}
	return out, err
}

// Dialogue returns what was said before the run's message, within the bounds.
func (m *Memory) Dialogue(ctx context.Context, of executor.Scope, within executor.Bounds) ([]executor.Said, error) {
	return m.said(ctx, of, within)
}

// said reads the conversation, page after page. Bounds of zero bound nothing but single entries, which come without their
// content if it has more than 8 MiB.
func (m *Memory) said(ctx context.Context, of executor.Scope, within executor.Bounds) ([]executor.Said, error) {
	if m.r.doc.Run.Turn == 1 && of == executor.OfTask {
		return nil, nil
	}
	var all []executor.Said
	before := ""
	for {
		count, size := maxEntries, int64(maxBytes)
		if within.Count > 0 {
			count = min(count, within.Count-len(all))
		}
		if within.Bytes > 0 {
			left := within.Bytes
			for i := range all {
				left -= all[i].Size()
			}
			size = min(size, left)
		}
		if count <= 0 || size <= 0 {
			return all, nil
		}
		query := url.Values{"scope": {of.String()}, "count": {strconv.Itoa(count)}, "bytes": {strconv.FormatInt(size, 10)}}
		if within.Progress {
			query.Set("progress", "true")
		}
		if before != "" {
			query.Set("before", before)
		}
		var raw []byte
		if err := m.ask(ctx, &exchange{method: http.MethodGet, path: "/history?" + query.Encode(), into: &raw}); err != nil {
			return nil, err
		}
		page, next, err := wire.DecodeHistory(raw, m.r.doc.Run.TaskID)
		if err != nil {
			return nil, err
		}
		all = append(page, all...)
		cut := len(page) == maxEntries || size == maxBytes // by the bounds of a page, and not by those of the caller
		if before = next; before == "" || len(page) == 0 || !cut {
			return all, nil
		}
	}
}

// References returns the tasks that the message refers to. The run document has them.
func (m *Memory) References(context.Context, executor.Bounds) ([]executor.Reference, error) {
	return m.r.doc.References, nil
}

// Checkpoint returns the last checkpoint of earlier tries. The run document has it.
func (m *Memory) Checkpoint(context.Context) (json.RawMessage, error) { return m.r.doc.Checkpoint, nil }

// Records returns a page of what durable runs of the task have recorded. The run document has the first one.
func (m *Memory) Records(ctx context.Context, after task.Seq, _ int64) (records []json.RawMessage, next task.Seq, err error) {
	page := m.r.doc.Records
	if after > 0 {
		page = &wire.RecordList{}
		if err := m.ask(ctx, &exchange{method: http.MethodGet, path: "/records?after=" + strconv.FormatInt(int64(after), 10), into: page}); err != nil {
			return nil, 0, fmt.Errorf("read the records: %w", err)
		}
	}
	if page == nil {
		return nil, 0, nil
	}
	return page.Records, page.Next, nil
}

// State returns the value that a run has stored for the task or for its context. If the run is over, it is the one that the run
// knew last.
func (m *Memory) State(ctx context.Context, of executor.Scope) (executor.State, error) {
	select {
	case <-m.r.life.Done():
		return m.r.states.get(of), nil
	default:
	}
	var in wire.StateDocument
	err := m.ask(ctx, &exchange{method: http.MethodGet, path: "/state/" + of.String(), into: &in})
	if code, _ := status(err); code == http.StatusNotFound {
		err = nil
	}
	if err != nil {
		return executor.State{}, err
	}
	s := executor.State{Value: json.RawMessage(in.Data), Version: in.Version}
	m.r.states.set(of, s)
	return s, nil
}

// SetState stores a value and returns its version.
func (m *Memory) SetState(ctx context.Context, of executor.Scope, value json.RawMessage, version int64) (int64, error) {
	header := map[string]string{}
	switch version {
	case executor.AnyVersion:
	case 0:
		header["If-None-Match"] = "*"
	default:
		header["If-Match"] = strconv.Quote(strconv.FormatInt(version, 10))
	}
	var out struct {
		Version int64 `json:"version"`
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	if size, most := int64(len(compact(value))), m.r.doc.Run.Limits.State; most > 0 && size > most {
		return 0, &executor.Failure{Msg: fmt.Sprintf("The agent's state for the %s has %d bytes; the limit is %d (limits.max_state).", of, size, most)}
	}
	err := m.ask(ctx, &exchange{method: http.MethodPut, path: "/state/" + of.String(), header: header, body: value, into: &out})
	switch code, _ := status(err); code {
	case http.StatusPreconditionFailed:
		// The answer to an earlier try of this request may have been lost.
		now, read := m.State(ctx, of)
		if read == nil && now.Version == version+1 && bytes.Equal(compact(now.Value), compact(value)) {
			return now.Version, nil
		}
		return 0, errors.Join(executor.ErrStateChanged, read)
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return 0, &executor.Failure{Msg: "The agent's state could not be stored.", Cause: err}
	}
	if err != nil {
		return 0, err
	}
	m.r.states.set(of, executor.State{Value: value, Version: out.Version})
	return out.Version, nil
}

func compact(raw json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return raw
	}
	return out.Bytes()
}

// Snapshot returns the task as it was before this run's message, with the artifacts of now. The first ones, as many as before
// says, existed before the message.
func (m *Memory) Snapshot(ctx context.Context) (t *task.Task, before int, err error) {
	d := m.r.doc.Run
	t = &task.Task{PublicID: d.TaskID, ContextID: d.ContextID}
	said, err := m.said(ctx, executor.OfTask, executor.Bounds{Progress: true})
	if err != nil {
		return nil, 0, err
	}
	old := map[string]bool{}
	for i := range said {
		s := &said[i]
		if s.Artifact != nil {
			old[s.Artifact.ID] = true
			continue
		}
		if t.Status.Message != nil {
			t.History = append(t.History, *t.Status.Message)
			t.Status.Message = nil
		}
		if s.State == task.StateUnspecified {
			t.History = append(t.History, *s.Message)
			continue
		}
		t.Status.State, t.Status.Message = s.State, s.Message
	}
	t.Status.State = m.found(t.Status.State)
	list, err := m.artifacts(ctx)
	if err != nil {
		return nil, 0, err
	}
	for i, id := range list {
		var raw []byte
		err := m.ask(ctx, &exchange{method: http.MethodGet, path: "/artifacts/" + url.PathEscape(id), into: &raw})
		if err != nil {
			return nil, 0, err
		}
		a, err := wire.DecodeArtifact(raw)
		if err != nil {
			return nil, 0, err
		}
		a.Index = i
		t.Artifacts = append(t.Artifacts, *a)
		if old[id] {
			before = i + 1
		}
	}
	return t, before, nil
}

// found returns the state in which the message found the task. newest is that of the newest status with a message; a question
// may have been without one.
func (m *Memory) found(newest task.State) task.State {
	d := m.r.doc.Run
	switch {
	case d.Turn == 1:
		return task.StateSubmitted
	case d.Input != nil && d.Input.Source != executor.SourceResume:
		return task.StateWorking
	case newest.Parked():
		return newest
	}
	return task.StateInputRequired
}

// artifacts lists the ids of the task's artifacts, in the order in which they first appeared.
func (m *Memory) artifacts(ctx context.Context) ([]string, error) {
	var ids []string
	after := ""
	for {
		var page wire.ArtifactList
		path := "/artifacts?count=100"
		if after != "" {
			path += "&after=" + url.QueryEscape(after)
		}
		if err := m.ask(ctx, &exchange{method: http.MethodGet, path: path, into: &page}); err != nil {
			return nil, fmt.Errorf("list the artifacts: %w", err)
		}
		for _, a := range page.Artifacts {
			ids = append(ids, a.ArtifactID)
		}
		if after = page.Next; after == "" || len(page.Artifacts) == 0 {
			return ids, nil
		}
	}
}
