package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	nethttp "net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const (
	// bookmarkInterval is the least time between two bookmarks. Each is a row of the log.
	bookmarkInterval = time.Second
	// maxCuts is how often an answer may break off without progress before the run ends, and firstPause is the pause
	// before it is read again, doubled each time.
	maxCuts    = 5
	firstPause = 200 * time.Millisecond
	// cancelTimeout bounds the call that ends a response.
	cancelTimeout = 5 * time.Second
)

// asked is a response in background mode: the provider goes on with it when nobody listens. As a checkpoint, it lets a
// later run read the rest.
type asked struct {
	ID   string `json:"id"`             // empty: the next run asks the model again
	Next int64  `json:"next,omitempty"` // number of the first event whose text is not in the log; 0: none is
	Item int    `json:"item,omitempty"` // output index of the newest text
}

// position is how far the events of a response have been heard.
type position struct {
	id      string // in background mode
	opened  func(id string) error
	next    int64 // the number after that of the newest event
	from    int64 // events with lower numbers were heard over an earlier connection
	jumbled bool  // the numbers do not rise
}

// responseID is what may be part of a URL.
var responseID = regexp.MustCompile(`^[A-Za-z0-9_=-][A-Za-z0-9_=.~:-]*$`)

const maxID = 2048

// open takes the beginning of a response. A response in background mode says so; other servers ignore the wish.
func (a *answer) open(r *response) error {
	if a.model == "" {
		a.model = r.Model
	}
	if a.opened == nil || a.id != "" || r.Background.Kind() != jsontext.KindTrue {
		return nil
	}
	if len(r.ID) > maxID || !responseID.MatchString(r.ID) {
		return &executor.Failure{Msg: "the model's answer is not understood: response.id: is missing or has characters that an id cannot have"}
	}
	a.id = r.ID
	return a.opened(r.ID)
}

// repeated notes the number of an event, and reports whether an earlier connection has brought it.
func (a *answer) repeated(number jsontext.Value) bool {
	var n int64
	if number.Kind() != jsontext.KindNumber || json.Unmarshal(number, &n) != nil || n < 0 || n >= 1<<53 {
		a.jumbled = true
		return false
	}
	if n < a.from {
		return true
	}
	if n < a.next {
		a.jumbled = true
	}
	a.next = max(a.next, n+1)
	return false
}

// continues reports whether a later run can go on behind the newest event: all that was heard is in the text.
func (a *answer) continues() bool {
	return !a.jumbled && a.finish == "" && len(a.calls)+a.refusal.Len()+a.images == 0
}

// progress rises with all that is heard.
func (a *answer) progress() int64 { return a.next + int64(a.text.Len()) }

var (
	errGone         = errors.New("the response is gone")
	errNoBackground = errors.New("the API has no background mode")
)

// respond gets the model's next answer: a new one, or the rest of one that an earlier run has asked for.
func (a *agent) respond(ctx context.Context, conversation []message, done *steps, box *toolbox, w *writer) (*answer, error) {
	if done.asked != nil && a.opts.Responses {
		got := a.recalled(done, w)
		err := a.reopen(ctx, got, done, w)
		if !errors.Is(err, errGone) {
			return got, a.persist(ctx, err, got, done, w)
		}
		a.opts.Log.Warn("response of an earlier run is gone; asking the model again", slog.String("task_id", done.run.TaskID))
		if err := done.forget(ctx); err != nil {
			return nil, err
		}
		w.resume(done)
	}
	inBackground := a.opts.Responses && a.opts.Background && !a.opts.Whole && !a.foreground.Load()
	got, err := a.ask(ctx, conversation, done, box, w, inBackground)
	if !errors.Is(err, errNoBackground) {
		return got, err
	}
	got, err = a.ask(ctx, conversation, done, box, w, false)
	if err == nil && !a.foreground.Swap(true) {
		a.opts.Log.Warn("model's API refuses background mode; a crash will repeat answers")
	}
	return got, err
}

// ask asks the model for an answer.
func (a *agent) ask(
	ctx context.Context, conversation []message, done *steps, box *toolbox, w *writer, background bool,
) (*answer, error) {
	body, err := a.request(conversation, box, background)
	if err != nil {
		return nil, err
	}
	x := &exchange{
		method: nethttp.MethodPost, url: a.url.JoinPath(a.format.method()...), body: body,
		key: fmt.Sprintf("%s:%d", done.run.IdempotencyKey(), len(done.rounds)),
	}
	got := &answer{max: a.opts.MaxEvent}
	if background {
		got.opened = func(id string) error {
			w.bookmark = done.bookmarks(ctx, got)
			done.asked = &asked{ID: id} // a cancel before the commit must reach the provider, too
			return done.record(ctx, step{Asked: done.asked})
		}
		x.refused = func(code int, about *apiError) error {
			if code < 500 && (about.param == "background" || strings.Contains(strings.ToLower(about.message), "background")) {
				return errNoBackground
			}
			return nil
		}
	}
	err = a.complete(ctx, x, got, w)
	if got.id == "" {
		return got, err
	}
	return got, a.persist(ctx, err, got, done, w)
}

// persist reads a response in background mode on over cuts. It ends with the response, or with an error of the run.
func (a *agent) persist(ctx context.Context, err error, got *answer, done *steps, w *writer) error {
	for cuts := 1; ctx.Err() == nil; cuts++ {
		if _, broke := errors.AsType[cutOff](err); !broke || cuts > maxCuts {
			break
		}
		if pause(ctx, firstPause<<(cuts-1)) != nil {
			break
		}
		before, broke := got.progress(), err
		if err = a.reopen(ctx, got, done, w); errors.Is(err, errGone) {
			err = broke
			got.last = true
		}
		if got.progress() > before {
			cuts = 0
		}
	}
	if !got.last || ctx.Err() != nil {
		return err
	}
	if err == nil {
		done.asked = nil // what follows says so in the log
		return nil
	}
	if failed := done.forget(ctx); failed != nil {
		return failed
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reopen reads the events of a response behind those that were heard, or all of them if they have no useful numbers.
func (a *agent) reopen(ctx context.Context, got *answer, done *steps, w *writer) error {
	if got.jumbled {
		*got = answer{max: got.max, position: position{id: got.id}}
		done.asked.Next, done.partial, done.reasoning = 0, "", ""
		w.resume(done)
	}
	w.bookmark = done.bookmarks(ctx, got)
	got.from = got.next
	address := a.url.JoinPath("responses", got.id)
	query := address.Query()
	query.Set("stream", "true")
	if got.next > 0 {
		query.Set("starting_after", strconv.FormatInt(got.next-1, 10))
	}
	address.RawQuery = query.Encode()
	return a.complete(ctx, &exchange{method: nethttp.MethodGet, url: address, refused: gone}, got, w)
}

// gone says that a server does not have the response, or cannot stream it again.
func gone(code int, _ *apiError) error {
	switch code {
	case nethttp.StatusBadRequest, nethttp.StatusNotFound, nethttp.StatusMethodNotAllowed, nethttp.StatusGone,
		nethttp.StatusUnprocessableEntity, nethttp.StatusNotImplemented:
		return errGone
	}
	return nil
}

// cancel ends a response that nobody will read, so that nobody pays for the rest.
func (a *agent) cancel(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	response, redact, err := a.send(ctx, &exchange{method: nethttp.MethodPost, url: a.url.JoinPath("responses", id, "cancel")})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body := web.ReadStart(response, maxErrorBody, cancel)
	if code := response.StatusCode; code < 200 || code > 299 {
		return refused(response, body, redact)
	}
	return nil
}

// abandoned reports whether no later run of the turn will read the answer.
func abandoned(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	_, again := executor.IsRetryable(err)
	_, away := errors.AsType[*executor.Unavailable](err)
	return err != nil && !again && !away &&
		!errors.Is(err, executor.ErrShutdown) && !errors.Is(err, executor.ErrLeaseLost) && !errors.Is(err, task.LeaseLost)
}

// recalled returns what an earlier run has heard of the response that it asked for.
func (a *agent) recalled(done *steps, w *writer) *answer {
	got := &answer{max: a.opts.MaxEvent, item: done.asked.Item, reasoned: w.reasoning.pending.Len() > 0}
	got.id, got.next = done.asked.ID, done.asked.Next
	got.text.WriteString(done.partial)
	return got
}

// bookmarks returns a function that stores how far the answer is in the log. Call it when all that was heard is written.
func (s *steps) bookmarks(ctx context.Context, got *answer) func() error {
	var newest time.Time
	return func() error {
		if !got.continues() || time.Since(newest) < bookmarkInterval {
			return nil
		}
		newest = time.Now()
		raw, err := json.Marshal(step{Asked: &asked{ID: got.id, Next: got.next, Item: got.item}})
		if err != nil {
			return fmt.Errorf("encode a checkpoint: %w", err)
		}
		return s.out.Checkpoint(ctx, raw)
	}
}

// forget stores that the response is of no more use.
func (s *steps) forget(ctx context.Context) error {
	s.partial, s.reasoning = "", ""
	return s.record(ctx, step{Asked: &asked{}})
}

// reread reads the text that earlier runs have written up to the newest bookmark.
func (s *steps) reread(ctx context.Context, w *writer) error {
	if s.asked == nil || s.asked.Next == 0 {
		return nil
	}
	events, err := s.run.Memory.Earlier(ctx)
	if err != nil {
		return fmt.Errorf("read the events of earlier runs: %w", err)
	}
	now, stored := map[string]string{}, map[string]string{}
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == task.EventArtifact && (e.Artifact.ID == w.answer.id || e.Artifact.ID == w.reasoning.id):
			if !e.Append {
				now[e.Artifact.ID] = ""
			}
			for j := range e.Artifact.Parts {
				now[e.Artifact.ID] += e.Artifact.Parts[j].Text
			}
		case e.Kind == task.EventRun && e.Run != nil && e.Run.Outcome == task.RunCheckpoint:
			var one step
			if json.Unmarshal(e.Run.Checkpoint, &one) == nil && one.Asked != nil && one.Asked.Next > 0 {
				stored[w.answer.id], stored[w.reasoning.id] = now[w.answer.id], now[w.reasoning.id]
			}
		}
	}
	text, known := stored[w.answer.id]
	partial, ok := strings.CutPrefix(text, s.text())
	if !known || !ok {
		s.asked.Next = 0 // what is in the log is of another answer: read this one from its beginning
		return nil
	}
	s.partial, s.reasoning = partial, stored[w.reasoning.id]
	return nil
}
