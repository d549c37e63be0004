package push

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Whatever receivers, processes and the database do, each webhook gets its events in order, one attempt at a time, each again
// under its id until it is recorded; no host or caller gets more than its share; and in the end everything is delivered.
func TestDeliveriesOfAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			history(rt)
		})
		// Rapid must hear of it in its own goroutine. It takes panics of one line for the same failure, and minimizes them.
		if rt.Failed() {
			panic(failure)
		}
		if failure != nil {
			panic(failure) // rapid's, for example because a shorter history lacks data
		}
	})
}

// slow answers when the gate of the moment opens.
func slow(mu *sync.Mutex, gate *chan struct{}) func(*request) (int, http.Header, error) {
	return func(r *request) (int, http.Header, error) {
		mu.Lock()
		opens := *gate
		mu.Unlock()
		select {
		case <-opens:
			return http.StatusOK, nil, nil
		case <-r.ctx.Done():
			return 0, nil, r.ctx.Err()
		}
	}
}

const (
	modelConcurrency, modelPerHost = 6, 2
	modelCoalesce                  = 5
)

var modelSchedule = Schedule{First: time.Second, Most: time.Minute, GiveUpAfter: time.Hour, GiveUpFirstAfter: 10 * time.Minute, MinAttempts: 5}

func history(t *rapid.T) {
	w := newWorld()
	defer w.halt()
	begin := func() {
		for range rapid.IntRange(1, 2).Draw(t, "processes") {
			w.start(func(o *Options) {
				o.Concurrency, o.PerHost, o.CoalesceAfter = modelConcurrency, modelPerHost, modelCoalesce
				o.PollInterval, o.Schedule = time.Minute, modelSchedule
				o.StopGrace = rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "grace")
			})
		}
	}
	begin()
	hosts := []string{"a", "b", "c", "d"}
	host := rapid.SampledFrom(hosts)
	gate := make(chan struct{})
	ways := map[string]func(*request) (int, http.Header, error){}
	w.answer = func(r *request) (int, http.Header, error) {
		w.mu.Lock()
		way := ways[r.host]
		w.mu.Unlock()
		if way == nil {
			way = answers(http.StatusOK)
		}
		return way(r)
	}
	broken := map[string]error{}
	w.mu.Lock()
	w.fails = func(statement string) error {
		err := broken[statement]
		delete(broken, statement)
		return err
	}
	w.mu.Unlock()
	for i := range rapid.IntRange(1, 12).Draw(t, "webhooks") {
		w.hook(host.Draw(t, "host"), int64(i%3), rapid.SampledFrom([]string{"events", "whole", "silent"}).Draw(t, "dialect"))
	}
	aWebhook := func(t *rapid.T) *cursor {
		return w.cursors[rapid.IntRange(0, len(w.cursors)-1).Draw(t, "webhook")]
	}
	t.Repeat(map[string]func(*rapid.T){
		"emit": func(t *rapid.T) { w.emit(aWebhook(t), rapid.IntRange(1, 20).Draw(t, "events")) },
		"answer": func(t *rapid.T) {
			way := map[string]func(*request) (int, http.Header, error){
				"yes": answers(http.StatusOK), "no": answers(http.StatusNotFound), "fails": answers(http.StatusInternalServerError),
				"later": answers(http.StatusTooManyRequests, "Retry-After", "600"), "gone": answers(http.StatusGone), "hangs": hangs,
				"breaks": func(*request) (int, http.Header, error) { return 0, nil, errors.New("broken") },
				"slow":   slow(&w.mu, &gate),
			}
			name := rapid.SampledFrom([]string{"yes", "yes", "no", "fails", "later", "gone", "hangs", "breaks", "slow"}).Draw(t, "way")
			w.mu.Lock()
			defer w.mu.Unlock()
			ways[host.Draw(t, "host")] = way[name]
		},
		"break": func(t *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.written = rapid.Bool().Draw(t, "written")
			kind := rapid.SampledFrom([]error{task.Unavailable, &task.Error{Kind: task.Internal, Msg: "unreadable"}}).Draw(t, "kind")
			broken[rapid.SampledFrom([]string{"claim", "read", "record"}).Draw(t, "statement")] = kind
		},
		"pass": func(t *rapid.T) {
			waittest.Advance(rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second, time.Minute, 20 * time.Minute, time.Hour}).Draw(t, "time"))
		},
		"go on": func(*rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			close(gate)
			gate = make(chan struct{})
		},
		"restart": func(*rapid.T) {
			w.halt()
			begin()
		},
		"change": func(t *rapid.T) {
			w.enable(aWebhook(t), rapid.SampledFrom(append(hosts, "")).Draw(t, "host"))
		},
		"": func(t *rapid.T) { w.check(t) },
	})
	w.mu.Lock()
	close(gate)
	clear(ways)
	clear(broken)
	w.mu.Unlock()
	for _, c := range w.cursors {
		w.enable(c, "")
	}
	waittest.Advance(24 * time.Hour)
	w.check(t)
	for i, c := range w.cursors {
		if int(c.Next) != len(c.log)+1 || !c.dueAt.IsZero() {
			t.Fatalf("webhook %d has %d events, and the next one is %d", i, len(c.log), c.Next)
		}
	}
}

// check reports what receivers have noticed, and compares what each webhook got with its log.
func (w *world) check(t *rapid.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		for key, n := range p.peak {
			most := modelPerHost
			switch {
			case key == "all", key == "caller 0":
				most = modelConcurrency
			case len(key) > 1:
				most = modelConcurrency / 2
			}
			if n > most {
				w.problem("%d attempts at a time of %s", n, key)
			}
		}
	}
	for i, c := range w.cursors {
		if err := c.inOrder(); err != nil && c.Config.Dialect != "silent" {
			w.problem("webhook %d: %v", i, err)
		}
		if c.disabled != "" && !c.mayBeDisabled() {
			w.problem("webhook %d is disabled: %s", i, c.disabled)
		}
	}
	if len(w.problems) > 0 {
		t.Fatalf("%q", w.problems)
	}
}

// inOrder checks that the receiver has accepted every event before Next, once the events that a later body of the whole task
// covers are left out.
func (c *cursor) inOrder() error {
	place, bodies := task.Seq(1), map[string]string{}
	for _, r := range c.requests {
		if body, known := bodies[r.id]; known && body != r.body {
			return fmt.Errorf("%q and %q have one id", body, r.body)
		}
		bodies[r.id] = r.body
		if r.status != http.StatusOK {
			continue
		}
		if r.seq > place+1 && !r.snapshot {
			return fmt.Errorf("%s follows event %d", r.body, place)
		}
		place = max(place, r.seq)
	}
	if place < c.Next-1 {
		return fmt.Errorf("event %d is recorded, and %d was accepted", c.Next-1, place)
	}
	return nil
}

// mayBeDisabled reports whether the schedule, or the receiver, allows that a webhook is disabled.
func (c *cursor) mayBeDisabled() bool {
	last, now := c.attempts[len(c.attempts)-1], time.Now()
	failing := func(least time.Duration) bool { return !now.Before(c.FailingSince.Add(least)) }
	return last.Class == string(Gone) || c.Failures >= modelSchedule.MinAttempts &&
		(failing(modelSchedule.GiveUpAfter) || !c.Accepted && failing(modelSchedule.GiveUpFirstAfter))
}
