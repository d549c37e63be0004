package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// Player turns an agent's events into calls of the run's Emitter. Only one goroutine may use it, for one run.
type Player struct {
	run     *executor.Run
	out     executor.Emitter
	played  int
	settled bool
}

// NewPlayer makes the Player of a run.
func NewPlayer(run *executor.Run, out executor.Emitter) *Player {
	return &Player{run: run, out: out}
}

// Settled reports whether the agent has ended the run. Later events are not read.
func (p *Player) Settled() bool { return p.settled }

// PlayLine decodes and plays one event that came on the given line.
func (p *Player) PlayLine(ctx context.Context, line int, raw []byte) error {
	event, bad := Decode(raw)
	if bad != nil {
		bad.Line = line
		return bad.Failure()
	}
	return p.play(ctx, line, event)
}

// Play plays an event. Errors are those of the Emitter, executor.ErrStateChanged, and a retryable error for the event retry.
func (p *Player) Play(ctx context.Context, e *Event) error { return p.play(ctx, 0, e) }

// PlayStream plays events until the agent settles the run or the stream ends. If the stream ends inside an event, it
// calls cut. A nil result means to play those bytes; an error ends the run.
//
// It reads no more of a large event while the process has no memory for it.
func (p *Player) PlayStream(ctx context.Context, s *web.Stream, cut func() error) error {
	s.Bound(func(n int) error { return p.run.Hold(ctx, n) }, p.run.Drop)
	defer s.Close()
	for !p.settled {
		raw, line, err := s.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, web.ErrCut):
			if err := cut(); err != nil {
				return err
			}
			return p.PlayLine(ctx, line, raw)
		case err != nil:
			return Unread(err)
		}
		if err := p.PlayLine(ctx, line, raw); err != nil {
			return err
		}
	}
	return nil
}

// ReadAnswer reads an answer that is one document, of at most limit bytes and one more. Like PlayStream it waits for the
// memory of a large one. The caller must call Run.Drop when the answer was played.
func (p *Player) ReadAnswer(ctx context.Context, in io.Reader, limit int) (raw []byte, err error) {
	in = io.LimitReader(in, int64(limit)+1)
	piece := make([]byte, 32<<10)
	for {
		n, err := in.Read(piece)
		if held := p.run.Hold(ctx, len(raw)+n); held != nil {
			return nil, held
		}
		raw = append(raw, piece[:n]...)
		switch {
		case errors.Is(err, io.EOF):
			return raw, nil
		case err != nil:
			return nil, err
		}
	}
}

// PlayAnswer decodes an answer that is one document and plays its events.
func (p *Player) PlayAnswer(ctx context.Context, raw []byte) error {
	events, bad := DecodeAnswer(raw)
	if bad != nil {
		return bad.Failure()
	}
	for _, event := range events {
		if err := p.play(ctx, 0, event); err != nil {
			return err
		}
	}
	return nil
}

func (p *Player) play(ctx context.Context, line int, e *Event) error {
	var err error
	switch e.Action {
	case Status:
		if e.Resume != nil {
			err = p.out.Ask(ctx, executor.Ask{State: e.State, Message: e.Message, Metadata: e.Metadata, Resume: e.Resume})
			break
		}
		err = p.out.StatusAbout(ctx, e.State, e.Message, executor.About{Metadata: e.Metadata, Cause: e.Error.text()})
	case Artifact:
		err = p.out.Artifact(ctx, e.Chunk)
	case Text:
		chunk := e.Chunk
		chunk.Artifact.ID = cmp.Or(chunk.Artifact.ID, executor.TextID(chunk.Artifact.Name, p.run.Turn))
		err = p.out.Artifact(ctx, chunk)
	case Checkpoint:
		err = p.out.Checkpoint(ctx, e.Checkpoint)
	case Record:
		err = p.out.Record(ctx, e.Checkpoint)
	case Reply:
		if p.played > 0 {
			bad := malformed("", "a reply must be the only event")
			bad.Line = line
			return bad.Failure()
		}
		err = p.out.Reply(ctx, e.Message)
	case Wait:
		err = p.out.Wait(ctx, e.Wait)
	case Call:
		err = p.out.Call(ctx, e.Calls)
	case Store:
		err = p.store(ctx, e.Stored)
	case Retry:
		return executor.Retryable(retryReason(e.Reason), e.After)
	}
	if err != nil {
		return err
	}
	p.played++
	p.settled = e.Ends()
	return nil
}

// store stores the agent's state. If another run has changed it meanwhile, the run is retried, with the new state in its
// run document.
func (p *Player) store(ctx context.Context, s Stored) error {
	_, err := p.run.Memory.SetState(ctx, s.Scope, s.Value, s.Version)
	if errors.Is(err, executor.ErrStateChanged) {
		return executor.Retryable(fmt.Errorf("state of the %s, version %d: %w", s.Scope, s.Version, err), 0)
	}
	return err
}

func retryReason(reason string) error {
	if reason == "" {
		return errors.New("the agent asked for another attempt")
	}
	return fmt.Errorf("the agent asked for another attempt: %s", quote(reason))
}
