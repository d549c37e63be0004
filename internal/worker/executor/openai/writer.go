package openai

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	// interval is how long text is collected for a chunk. Each chunk is a row of the log, and models send a token at a
	// time. The first chunk is not delayed.
	interval = 100 * time.Millisecond
	// enough is the size of a chunk that is sent before its time, in bytes.
	enough = 8 << 10
)

// writer writes the artifacts of a run. Their ids depend on the turn alone, and the first chunk of a run replaces what an
// earlier run of the turn wrote.
type writer struct {
	ctx context.Context
	run *executor.Run
	out executor.Emitter

	answer    growing
	reasoning growing
	reasons   bool // show the reasoning
	images    int
	timer     <-chan time.Time // is ready when flush is due
	last      time.Time        // of the newest chunk
	alive     time.Time        // of the newest sign of life

	tokens usage
	model  string
	finish string
}

const reasoningName = "reasoning"

// growing is an artifact of text.
type growing struct {
	id, name string
	pending  strings.Builder
	begun    bool
}

func newWriter(ctx context.Context, run *executor.Run, out executor.Emitter, reasons bool) *writer {
	return &writer{
		ctx: ctx, run: run, out: out, reasons: reasons,
		answer:    growing{id: fmt.Sprintf("answer-%d", run.Turn), name: "answer"},
		reasoning: growing{id: fmt.Sprintf("%s-%d", reasoningName, run.Turn), name: reasoningName},
	}
}

// wrote reports whether the run has anything to show.
func (w *writer) wrote() bool { return w.answer.begun || w.answer.pending.Len() > 0 || w.images > 0 }

func (w *writer) take(p piece) error {
	if w.reasons && p.reasoning != "" {
		w.reasoning.pending.WriteString(p.reasoning)
	}
	w.answer.pending.WriteString(p.text)
	for i := range p.images {
		if err := w.image(p.images[i].ImageURL.URL); err != nil {
			return err
		}
	}
	collected := w.answer.pending.Len() + w.reasoning.pending.Len()
	switch {
	case collected == 0:
		return w.beat()
	case collected >= enough, time.Since(w.last) >= interval:
		return w.flush()
	case w.timer == nil:
		w.timer = time.After(interval - time.Since(w.last))
	}
	return nil
}

// beat tells the worker that the agent is busy, since a model may reason for long.
func (w *writer) beat() error {
	if time.Since(w.alive) < interval {
		return nil
	}
	w.alive = time.Now()
	return w.out.Status(w.ctx, task.StateWorking, nil)
}

func (w *writer) flush() error {
	w.timer, w.last = nil, time.Now()
	for _, g := range []*growing{&w.reasoning, &w.answer} {
		if g.pending.Len() == 0 {
			continue
		}
		if err := w.chunk(g, false, nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) chunk(g *growing, last bool, metadata json.RawMessage) error {
	err := w.out.Artifact(w.ctx, executor.Chunk{
		Artifact: task.Artifact{ID: g.id, Name: g.name, Parts: []task.Part{task.Text(g.pending.String())}},
		Append:   g.begun, Last: last, Metadata: metadata,
	})
	g.begun = true
	g.pending.Reset()
	return err
}

// image emits an image as an artifact of its own.
func (w *writer) image(address string) error {
	if address == "" {
		return nil
	}
	part := task.Part{Kind: task.PartURL, URL: address}
	if head, content, inline := strings.Cut(address, ","); inline && strings.HasPrefix(head, "data:") {
		mediaType, encoding, _ := strings.Cut(strings.TrimPrefix(head, "data:"), ";")
		raw, err := base64.StdEncoding.DecodeString(content)
		if err != nil || !strings.HasSuffix(encoding, "base64") {
			return &executor.Failure{Msg: "the model's answer is not understood: images: is not a data URL in base64"}
		}
		part = task.Part{Kind: task.PartRaw, Raw: raw, MediaType: mediaType}
	}
	w.images++
	err := w.out.Artifact(w.ctx, executor.Chunk{Last: true, Artifact: task.Artifact{
		ID: fmt.Sprintf("image-%d-%d", w.run.Turn, w.images), Name: "image", Parts: []task.Part{part},
	}})
	return err
}

// resume starts with what earlier runs of the turn have finished. The first chunk has their text, because it replaces all
// that they wrote.
func (w *writer) resume(done *steps) {
	w.answer.pending.WriteString(done.text())
	w.tokens, w.images = done.usage(), done.images()
}

// rest ends what the model said before its calls.
func (w *writer) rest(a *answer) {
	if a.text.Len() > 0 {
		w.answer.pending.WriteString(strings.TrimPrefix(withBreak(a.text.String()), a.text.String()))
	}
}

// beatDuring tells the worker that the agent is busy until stop is called.
func (w *writer) beatDuring() (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if w.out.Status(ctx, task.StateWorking, nil) != nil {
					return // the run has ended, as its next event will find
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// spent adds what a call of the model cost.
func (w *writer) spent(a *answer) {
	w.tokens.plus(a.usage)
	w.model, w.finish = a.model, a.finish
}

// metadata describes the run's calls of the model, for v_usage among others.
func (w *writer) metadata() json.RawMessage {
	about := map[string]any{}
	if w.tokens != (usage{}) {
		about["usage"] = w.tokens
	}
	if w.model != "" {
		about["model"] = w.model
	}
	if w.finish != "" {
		about["finishReason"] = w.finish
	}
	if len(about) == 0 {
		return nil
	}
	raw, err := json.Marshal(about)
	if err != nil {
		return nil // strings and numbers always have JSON
	}
	return raw
}

// pause ends the answer of a turn that goes on with the next one. The question has the usage.
func (w *writer) pause() error {
	if err := w.flush(); err != nil || !w.answer.begun {
		return err
	}
	return w.chunk(&w.answer, true, nil)
}

// close ends the artifacts. The last chunk has the usage, and replaces what an earlier run of the turn wrote if this run
// had nothing to say.
func (w *writer) close() error {
	if w.reasoning.begun || w.reasoning.pending.Len() > 0 {
		if err := w.chunk(&w.reasoning, true, nil); err != nil {
			return err
		}
	}
	return w.chunk(&w.answer, true, w.metadata())
}
