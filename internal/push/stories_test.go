package push

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// story runs in a bubble, with a world whose processes stop in the end.
func story(t *testing.T, tell func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer func() {
			w.halt()
			require.Empty(t, w.problems)
		}()
		tell(t, w)
	})
}

// advance lets time pass. The lock orders what the test has read before what the processes write next, for the race detector.
func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	w.mu.Unlock() //nolint:staticcheck // an empty section, as above
	waittest.Advance(d)
}

// bodies are those that a receiver got.
func (c *cursor) bodies() (all []string) {
	for _, r := range c.requests {
		all = append(all, r.body)
	}
	return all
}

// events are the bodies of single events.
func events(from, to int) (all []string) {
	for seq := from; seq <= to; seq++ {
		all = append(all, fmt.Sprint("event ", seq))
	}
	return all
}

func TestFailures(t *testing.T) {
	t.Parallel()
	giving := Schedule{First: 10 * time.Second, Most: 10 * time.Second, GiveUpAfter: time.Hour, GiveUpFirstAfter: time.Minute, MinAttempts: 4}
	once := func(then func(*request) (int, http.Header, error)) func(*request) (int, http.Header, error) {
		return func(r *request) (int, http.Header, error) {
			if r.seq == 2 {
				return http.StatusOK, nil, nil
			}
			return then(r)
		}
	}
	for name, c := range map[string]struct {
		answer   func(*request) (int, http.Header, error)
		away     string // the statement that fails; default: read
		fails    error
		dialect  string
		after    time.Duration
		disabled string // contains it; "": it is still enabled
		class    Class  // of all attempts that failed
		least    int    // attempts that failed
		most     int
	}{
		"gone":               {answer: answers(410), after: time.Hour, disabled: "the receiver answered 410 Gone", class: Gone, least: 1, most: 1},
		"never accepted":     {answer: answers(404), after: 70 * time.Second, disabled: "has never accepted a delivery: ", class: Client, least: 6, most: 14},
		"not yet given up":   {answer: answers(404), after: 59 * time.Second, class: Client, least: 5, most: 12},
		"accepted before":    {answer: once(answers(404)), after: 59 * time.Minute, class: Client, least: 300, most: 720},
		"in the end":         {answer: once(answers(404)), after: 61 * time.Minute, disabled: "in a row failed, for 1h0m", class: Client, least: 300, most: 720},
		"too few attempts":   {answer: answers(404, "Retry-After", "3600"), after: 3*time.Hour - time.Minute, class: Client, least: 3, most: 3},
		"in enough attempts": {answer: answers(404, "Retry-After", "3600"), after: 3*time.Hour + 1, disabled: "4 deliveries in a row failed, for 3h0m0s: ", class: Client, least: 4, most: 4},
		"told when to retry": {answer: answers(429, "Retry-After", "3600"), after: time.Hour - 1, class: Throttled, least: 1, most: 1},
		"retried when told":  {answer: answers(429, "Retry-After", "3600"), after: time.Hour + 1, class: Throttled, least: 2, most: 2},
		// An error of this server says nothing about the receiver, so it is not given up early.
		"no such version":       {dialect: "unknown", after: 59 * time.Minute, class: Internal, least: 300, most: 720},
		"no such version ends":  {dialect: "unknown", after: 61 * time.Minute, disabled: "s: no such version", class: Internal, least: 300, most: 720},
		"unreadable":            {fails: errors.New("damaged"), after: 2 * time.Minute, class: Internal, least: 10, most: 25},
		"unreadable ends":       {fails: errors.New("damaged"), after: 61 * time.Minute, disabled: "its events cannot be read: damaged", class: Internal, least: 300, most: 720},
		"sealed":                {away: "open", fails: errors.New("no key"), after: 2 * time.Minute, class: Internal, least: 10, most: 25},
		"the key is away":       {away: "open", fails: task.Unavailable, after: 2 * time.Hour},
		"the database is away":  {fails: task.Unavailable, after: 2 * time.Hour},
		"it has nothing to say": {dialect: "silent", after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				if c.answer != nil {
					w.answer = c.answer
				}
				w.fails = func(statement string) error {
					if statement != cmp.Or(c.away, "read") {
						return nil
					}
					return c.fails
				}
				w.start(func(o *Options) { o.Schedule = giving })
				hook := w.hook("a", 0, c.dialect)
				w.emit(hook, 2)
				w.advance(c.after)
				w.mu.Lock()
				defer w.mu.Unlock()
				failed := 0
				for _, a := range hook.attempts {
					if a.Failed {
						failed++
						require.Equal(t, string(c.class), a.Class)
					}
				}
				require.GreaterOrEqual(t, failed, c.least)
				require.LessOrEqual(t, failed, c.most)
				require.Contains(t, hook.disabled, c.disabled)
				require.Equal(t, c.disabled == "", hook.disabled == "", hook.disabled)
				if c.class == "" {
					require.Empty(t, hook.attempts)
					require.Empty(t, hook.requests)
					require.Zero(t, hook.Failures)
				}
			})
		})
	}
}

func TestAReceiverThatLagsGetsTheTask(t *testing.T) {
	t.Parallel()
	for backlog, want := range map[int][]string{5: events(3, 7), 6: {"task 8"}} {
		story(t, func(t *testing.T, w *world) {
			release := make(chan struct{})
			w.answer = func(*request) (int, http.Header, error) { <-release; return http.StatusOK, nil, nil }
			w.start(func(o *Options) { o.CoalesceAfter = 5 })
			hook := w.hook("a", 0, "events")
			w.emit(hook, 1)
			w.advance(0)
			w.emit(hook, backlog)
			close(release)
			w.advance(0)
			require.Equal(t, append([]string{"event 2"}, want...), hook.bodies())
			last := hook.attempts[len(hook.attempts)-1]
			require.Equal(t, task.Seq(2+backlog), last.To)
		})
	}
}

// Nobody waits for hosts that do not answer: neither other hosts, nor other callers, nor callers without an identity.
func TestHostsThatHangStallNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hosts  int
		caller int64
		slots  int // a host's
		silent bool
		peak   map[string]int
	}{
		"one host":                        {hosts: 1, slots: 3, peak: map[string]int{"dead-0": 3}},
		"many hosts of one caller":        {hosts: 5, caller: 7, slots: 2, peak: map[string]int{"caller 7": 3}},
		"many hosts of callers not known": {hosts: 4, slots: 2, silent: true, peak: map[string]int{"caller 0": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				w.answer = func(r *request) (int, http.Header, error) {
					if strings.HasPrefix(r.host, "dead") {
						return hangs(r)
					}
					return http.StatusOK, nil, nil
				}
				p := w.start(func(o *Options) { o.Concurrency, o.PerHost, o.StopGrace = 6, c.slots, 0 })
				for i := range 40 {
					w.emit(w.hook(fmt.Sprint("dead-", i%c.hosts), c.caller, "events"), 1)
				}
				if c.silent {
					// They have all slots until their first timeout says that they are silent.
					w.advance(time.Minute)
					w.mu.Lock()
					clear(p.peak)
					w.mu.Unlock()
				}
				for range 40 {
					good := w.hook("good", 8, "events")
					w.emit(good, 1)
					w.advance(0)
					require.Len(t, good.requests, 1, "at once")
					w.advance(time.Second)
				}
				for key, most := range c.peak {
					require.Equal(t, most, p.peak[key], key)
				}
			})
		})
	}
}

// A webhook that becomes due while no slot is free is claimed with the next one, and does not wait for the poll.
func TestFreeSlotsLookForMore(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]bool{"a slot": false, "a silent host": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				answer, requests := make(chan struct{}), 0
				w.answer = func(r *request) (int, http.Header, error) {
					if requests++; silent && requests == 1 {
						return hangs(r)
					}
					<-answer
					return http.StatusOK, nil, nil
				}
				failed := false
				w.fails = func(statement string) error {
					if failed || silent || statement != "claimed" {
						return nil
					}
					failed = true
					return task.Unavailable
				}
				w.start(func(o *Options) {
					o.Concurrency, o.PollInterval = 1, 1000*time.Hour
					if silent {
						o.Concurrency = 2
					}
				})
				first := w.hook("a", 0, "events")
				w.emit(first, 1)
				w.advance(0)
				if silent {
					w.advance(20 * time.Second)
				}
				require.Len(t, first.requests, requests)
				second := w.hook("a", 0, "events")
				w.emit(second, 1)
				w.advance(0)
				require.Empty(t, second.requests)
				close(answer)
				w.advance(5 * time.Second)
				require.Len(t, second.requests, 1)
			})
		})
	}
}

// A claim that waits for its host is extended before it delivers, which fails if its task was purged or its webhook disabled.
func TestClaimsThatWaitAreExtended(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		turn := make(chan struct{})
		w.answer = func(*request) (int, http.Header, error) { <-turn; return http.StatusOK, nil, nil }
		w.perHost = 8 // more than may be under way
		w.start(func(o *Options) { o.PerHost = 1 })
		var hooks []*cursor
		for range 41 {
			hooks = append(hooks, w.hook("a", 0, "events"))
			w.emit(hooks[len(hooks)-1], 1)
		}
		w.advance(0)
		disabled := 0
		for i, c := range hooks {
			if len(c.requests) == 0 && !c.lockedUntil.IsZero() {
				w.mu.Lock()
				c.disabled, c.dueAt, c.Claim = "enough", time.Time{}, [16]byte{}
				w.mu.Unlock()
				disabled = i
				break
			}
		}
		require.Positive(t, disabled)
		for range 40 {
			w.advance(time.Second)
			turn <- struct{}{}
		}
		w.advance(time.Hour)
		for i, c := range hooks {
			if i == disabled {
				require.Empty(t, c.requests)
			} else {
				require.Len(t, c.requests, 1)
			}
		}
		require.Positive(t, w.extended)
	})
}

func TestAStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace time.Duration
		first []string // what the receiver got by then
		after []string // from another process
	}{
		"with grace":    {time.Minute, []string{"event 2"}, []string{"event 3"}},
		"without grace": {0, []string{"event 2"}, []string{"event 2", "event 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, func(t *testing.T, w *world) {
				gate := make(chan struct{})
				w.answer = slow(&w.mu, &gate)
				w.perHost = 8 // one claim wins both, and the second one waits
				hook, other := w.hook("a", 0, "events"), w.hook("a", 0, "events")
				w.emit(hook, 2)
				w.emit(other, 1)
				p := w.start(func(o *Options) { o.StopGrace, o.PerHost = c.grace, 1 })
				w.advance(0)
				require.False(t, other.lockedUntil.IsZero())
				p.stop()
				w.advance(0)
				close(gate)
				w.halt()
				require.Equal(t, c.first, hook.bodies(), "no other attempt begins")
				require.Len(t, hook.attempts, 2-len(c.after)+len(c.first)-1)
				require.Empty(t, other.requests)
				stopped := time.Now()
				w.start(nil)
				w.advance(0)
				require.Len(t, other.requests, 1, "its claim was released")
				require.Zero(t, waittest.Elapsed(stopped))
				w.advance(time.Minute)
				require.Equal(t, append(c.first, c.after...), hook.bodies())
				require.Equal(t, len(c.after) == 2, hook.requests[0].id == hook.requests[1].id)
			})
		})
	}
}

func TestWithoutALeaseNothingIsClaimed(t *testing.T) {
	t.Parallel()
	story(t, func(t *testing.T, w *world) {
		var has atomic.Bool
		w.start(func(o *Options) {
			o.Worker = func() task.ID {
				if has.Load() {
					return task.ID{9}
				}
				return task.ID{}
			}
		})
		hook := w.hook("a", 0, "events")
		w.emit(hook, 1)
		w.advance(time.Hour)
		require.Empty(t, hook.requests)
		has.Store(true)
		w.advance(time.Second)
		require.Len(t, hook.requests, 1, "the poll finds it")
	})
}
