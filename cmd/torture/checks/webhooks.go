package checks

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
	"github.com/holdfast-a2a/holdfast/internal/test/judge"
)

// receiver is where the server sends its notifications. While it is away it refuses them.
type receiver struct {
	url    string
	server *http.Server

	mu      sync.Mutex
	away    bool
	refused int
	got     map[string][]delivery // by the last element of the path
}

type delivery struct {
	body []byte
	id   string // which repetitions of the delivery have too; "" if the server gives none
}

func (r *run) receive(ctx context.Context) (*receiver, error) {
	l, err := r.o.listen(ctx, "tcp", r.o.HookListen)
	if err != nil {
		return nil, err
	}
	rc := &receiver{url: strings.TrimRight(r.o.HookURL, "/"), got: map[string][]delivery{}}
	if rc.url == "" {
		rc.url = "http://" + l.Addr().String()
	}
	rc.server = &http.Server{Handler: rc, ReadTimeout: r.o.Patience}
	go func() { _ = rc.server.Serve(l) }()
	return rc, nil
}

// ServeHTTP implements http.Handler.
func (rc *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 16<<20))
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if err != nil || rc.away {
		rc.refused++
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	d := delivery{body: body, id: req.Header.Get("Idempotency-Key")}
	if d.id == "" {
		d.id = req.Header.Get("Webhook-Id")
	}
	name := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	rc.got[name] = append(rc.got[name], d)
}

func (rc *receiver) leave(away bool) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.away = away
}

func (rc *receiver) refusals() int {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return rc.refused
}

// deliveries are those of a webhook, without repetitions under one id.
func (rc *receiver) deliveries(name string) (all [][]byte) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	seen := map[string]bool{}
	for _, d := range rc.got[name] {
		if d.id == "" || !seen[d.id] {
			all = append(all, d.body)
		}
		seen[d.id] = true
	}
	return all
}

// hooked is a task with a webhook.
type hooked struct {
	*story
	name string
	at   *peer
}

// hooking starts the receiver, if the server sends webhooks.
func (p *probe) hooking(ctx context.Context) *receiver {
	switch {
	case !p.peers[0].c.Card().Capabilities.PushNotifications:
		p.skip("the card does not announce push notifications")
		return nil
	case p.o.HookListen == "":
		p.skip("no receiver: give --webhook-listen")
		return nil
	case !p.streaming():
		return nil
	}
	rc, err := p.receive(ctx)
	if err != nil {
		p.unsure("receive webhooks: %v", err)
	}
	return rc
}

// webhooks creates tasks with webhooks. Their receiver must learn each status that a stream shows; order and repetitions are left
// to the server.
func webhooks(ctx context.Context, p *probe) {
	rc := p.hooking(ctx)
	if rc == nil {
		return
	}
	defer func() { _ = rc.server.Close() }()
	p.each(p.o.Load, func(int) {
		h := p.hook(ctx, judge.New(), rc)
		if h == nil {
			return
		}
		var missing []string
		for until := time.Now().Add(p.o.Patience); time.Now().Before(until) && ctx.Err() == nil; _ = pause(ctx, 50*time.Millisecond) {
			told := map[string]bool{}
			for _, body := range rc.deliveries(h.name) {
				e, err := h.at.c.Notification(body)
				if err != nil {
					p.violation(h.id, "a notification about task %s: %v: %.300s", h.id, err, body)
					return
				}
				told[e.State().String()] = true
			}
			missing = nil
			for _, e := range h.whole.events {
				if e.State != "" && !told[e.State] {
					missing = append(missing, e.State)
				}
			}
			if missing == nil {
				p.count("tasks", 1)
				p.count("notifications", len(rc.deliveries(h.name)))
				return
			}
		}
		p.violation(h.id, "the webhook of task %s got %d notifications within %v, and none says %s", h.id, len(rc.deliveries(h.name)), p.o.Patience, strings.Join(missing, " or "))
	})
}

// webhookRetries creates tasks with webhooks whose receiver is away until they have ended.
func webhookRetries(ctx context.Context, p *probe) {
	rc := p.hooking(ctx)
	if rc == nil {
		return
	}
	defer func() { _ = rc.server.Close() }()
	rc.leave(true)
	l, statuses := judge.New(), judge.New()
	all := make([]*hooked, p.o.Load)
	p.each(p.o.Load, func(i int) { all[i] = p.hook(ctx, l, rc) })
	all = slices.DeleteFunc(all, func(h *hooked) bool { return h == nil })
	_ = pause(ctx, p.between(500*time.Millisecond, time.Second))
	for until := time.Now().Add(p.o.Patience); len(all) > 0 && rc.refusals() == 0 && time.Now().Before(until) && ctx.Err() == nil; {
		_ = pause(ctx, 50*time.Millisecond)
	}
	rc.leave(false)
	p.each(len(all), func(i int) { p.deliver(ctx, l, statuses, rc, all[i]) })
	var stories []*story
	for _, h := range all {
		stories = append(stories, h.story)
	}
	p.count("refused deliveries", rc.refusals())
	if rc.refusals() == 0 && len(stories) > 0 {
		p.unsure("the server tried no delivery while the receiver was away")
	}
	logs := p.verify(ctx, l, stories)
	for id, lg := range logs {
		logs[id] = &judge.Log{Begin: judge.View{State: lg.Begin.State}, Events: slices.DeleteFunc(slices.Clone(lg.Events), func(r judge.Row) bool { return r.State == "" })}
	}
	if logs != nil {
		for _, v := range judge.Audit(logs, statuses, true) {
			p.violation(v.Task, "the webhook: %s", v.Text)
		}
	}
}

func (p *probe) hook(ctx context.Context, l *judge.Ledger, rc *receiver) *hooked {
	at := p.any()
	n := 5 + p.number(10)
	m, mark := message(p.o.Scripts.chunks(n, 5*time.Millisecond), place{})
	h := &hooked{name: rand.Text(), at: at}
	m.Push = client.Push{ID: "torture", URL: rc.url + "/torture/" + h.name, Token: rand.Text()}
	creator := &Listener{Ledger: l}
	err := at.listen(ctx, creator, func(ctx context.Context) (*client.Stream, error) { return at.c.Stream(ctx, m) })
	switch {
	case creator.Task() == "" && client.Reported(err) != nil:
		p.unsure("the server refused the webhook %s: %v", rc.url, err)
		return nil
	case err != nil || !creator.ended:
		p.failed(creator.Task(), "send a message with a webhook as a stream", cmpError(err, "the stream has no end"))
		return nil
	}
	h.story = &story{id: creator.task, marks: []string{mark}, want: judge.Outcome{State: "completed", Chunks: n, Size: chunkSize}, whole: creator}
	return h
}

func isChunk(e *client.Event) bool { return e.Event != nil && e.Event.Artifact != nil }

func cmpError(err error, otherwise string) error {
	if err != nil {
		return err
	}
	return errors.New(otherwise)
}

// deliver waits until a webhook has got the end of its task, and writes what it got into a ledger: l, or the one of servers that
// send no chunks. A server sends events, or the whole task each time.
func (p *probe) deliver(ctx context.Context, l, statuses *judge.Ledger, rc *receiver, h *hooked) {
	var events []*client.Event
	for until := time.Now().Add(p.o.Patience); ; {
		events = events[:0]
		ended := false
		for _, body := range rc.deliveries(h.name) {
			e, err := h.at.c.Notification(body)
			if err != nil {
				p.violation(h.id, "a notification about task %s: %v: %.300s", h.id, err, body)
				return
			}
			events = append(events, e)
			ended = ended || e.State().Terminal()
		}
		if ended && pause(ctx, 200*time.Millisecond) == nil && len(rc.deliveries(h.name)) == len(events) {
			break
		}
		if time.Now().After(until) || ctx.Err() != nil {
			p.violation(h.id, "the webhook of task %s got %d notifications, and not the end of the task, within %v after the receiver was back", h.id, len(events), p.o.Patience)
			return
		}
		_ = pause(ctx, 50*time.Millisecond)
	}
	p.count("notifications", len(events))
	whole := 0
	for _, e := range events {
		if e.Task != nil {
			whole++
		}
	}
	if whole == len(events) {
		reading := l.Follow(h.id)
		for i, e := range events {
			reading.Saw(viewOf(e.Task))
			if i > 0 && string(e.Raw) == string(events[i-1].Raw) {
				p.violation(h.id, "the webhook of task %s got the same notification twice", h.id)
			}
		}
		return
	}
	hook := &Listener{Ledger: l}
	chunks := slices.ContainsFunc(events, isChunk)
	if !chunks {
		hook.Ledger = statuses
		events = slices.DeleteFunc(events, func(e *client.Event) bool { return e.Task != nil })
	}
	if events[0].Task == nil {
		hook.reading, hook.task, hook.opened = hook.Ledger.Follow(h.id), h.id, true
		if h.at.c.Resumes() {
			hook.reading.From(0)
		} else {
			// The stream, which is the log here, may have begun after the first statuses.
			before, ok := h.whole.beforeChunks()
			if !ok {
				p.unsure("a stream began after the first chunk, so nobody knows all events")
				return
			}
			for len(events) > 0 && !isChunk(events[0]) && !events[0].State().Terminal() {
				events = events[1:]
			}
			if chunks {
				hook.reading.Opened(&before)
			} else {
				hook.reading.Opened(nil)
			}
		}
	}
	for _, e := range events {
		e.ID = "" // the ids of streams are not here
		hook.Note(h.at.c, e)
	}
	p.proper(hook)
}
