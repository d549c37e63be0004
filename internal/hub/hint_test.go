package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func TestHintsFitIntoNotifications(t *testing.T) {
	t.Parallel()
	n := newNotifier(Options{})
	want := map[string]bool{}
	for i := range 5000 {
		id, seq := store.NewID(), task.Seq(2+i)
		n.events([]*task.Event{{Task: id, Seq: seq}})
		want[fmt.Sprintf("%x:%d", id[:], seq)] = true
	}
	for i := range 4 {
		agent := fmt.Sprint(strings.Repeat("n", 3000), i)
		n.ready(agent)
		want["q:"+agent] = true
	}
	payloads := n.take()
	require.Less(t, len(payloads), 60)
	for _, p := range payloads {
		require.Less(t, len(p), 8000)
		for _, entry := range strings.Split(p, ",")[1:] {
			require.True(t, want[entry], entry)
			delete(want, entry)
		}
	}
	require.Empty(t, want)
	require.Empty(t, n.take())
}

// sent records payloads, with their times.
type sent struct {
	mu   sync.Mutex
	at   []time.Time
	text string
	err  error
}

func (s *sent) Send(_ context.Context, payloads []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	s.text += strings.Join(payloads, ",") + ","
	return s.err
}

// said is the text since the start or the last failure; the next payloads end with an error.
func (s *sent) said(next error) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := s.text
	if s.err != nil {
		s.text = ""
	}
	s.err = next
	return text
}

// A process with many others sends its hints together, and loses none: each NOTIFY wakes all of them.
func TestManyProcessesSendTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, conn := newNotifier(Options{Log: slog.New(slog.DiscardHandler)}), &sent{}
		n.peers.Store(11)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.serve(ctx, conn) }()
		for i := range 100 {
			n.ready(fmt.Sprintf("agent-%d", i))
			waittest.Advance(time.Millisecond)
		}
		waittest.Advance(time.Second)
		for i := range 100 {
			require.Contains(t, conn.said(nil), fmt.Sprintf(",q:agent-%d,", i))
		}
		require.Len(t, conn.at, 11, "at once, and then every 10 ms")

		// After a failure, the others must look at everything.
		conn.said(errors.New("away"))
		n.ready("lost")
		synctest.Wait()
		conn.said(nil)
		waittest.Advance(2 * time.Second)
		require.Contains(t, conn.said(nil), ",r:,")

		// At the end, what waits for its turn is sent.
		n.ready("last")
		synctest.Wait()
		n.ready("after it")
		synctest.Wait()
		stop()
		require.NoError(t, <-done)
		require.Contains(t, conn.said(nil), ",q:after it,")
	})
}

// Any client of the database can send a payload. Each valid entry is acted on once, in order; invalid entries are ignored.
func FuzzHear(f *testing.F) {
	const id = "0192f0c1d2e3f4a5b6c7d8e9fa0b1c2d"
	for _, payload := range []string{
		"", ",", "peer", "peer,", "peer," + id + ":7", "peer," + id + ":7," + id + ":9,q:demo,c:" + id + ",r:,h:",
		"peer," + id + ":-1", "peer," + id + ":9223372036854775808", "peer," + id + ":", "peer," + id[1:] + ":3", "peer,c:" + id[2:],
		"peer,c:" + strings.ToUpper(id), "peer,q:", "peer,:,::,q::,c:q:r:", "self,t:nonce,q:demo,c:" + id, "peer,t:nonce", "peer,p:", "peer,p:x,r:", "peer,n:" + id + ",n:" + id[2:], "self,n:" + id, "self,p:", "peer,t:", "r:", "self",
		"peer," + id + ":1e3", "peer," + id + ":+5", "peer,\xff:1,q:\xff",
	} {
		f.Add(payload)
	}
	entry := regexp.MustCompile(`^(?s)([^:]*):(.*)$`)
	isID := regexp.MustCompile(`^[0-9a-fA-F]{32}$`)
	f.Fuzz(func(t *testing.T, payload string) {
		var heard []string
		var bus signal.Bus
		bus.Queues.Subscribe(func(agent string) { heard = append(heard, "q:"+agent) })
		bus.Cancels.Subscribe(func(id task.ID) { heard = append(heard, "c:"+hex.EncodeToString(id[:])) })
		bus.Notified.Subscribe(func(id task.ID) { heard = append(heard, "n:"+hex.EncodeToString(id[:])) })
		bus.Webhooks.Subscribe(func(struct{}) { heard = append(heard, "p:") })
		h := New(Options{Signals: &bus})
		h.notify.name = "self"
		var followed task.ID
		_, err := hex.Decode(followed[:], []byte(id))
		require.NoError(t, err)
		sub := h.Subscribe(&task.Task{ID: followed})
		defer sub.Close()
		sub.Start(task.Position{Seq: 5})

		h.hear(payload)

		var want []string
		dirty, highest := false, int64(5)
		sender, rest, _ := strings.Cut(payload, ",")
		for _, part := range strings.Split(rest, ",") {
			m := entry.FindStringSubmatch(part)
			if m == nil || sender == "self" {
				continue
			}
			switch {
			case m[1] == "q":
				want = append(want, part)
			case m[1] == "r":
				want, dirty = append(want, "q:", "p:"), true
			case m[1] == "p":
				want = append(want, "p:")
			case (m[1] == "c" || m[1] == "n") && isID.MatchString(m[2]):
				want = append(want, strings.ToLower(part))
			case strings.EqualFold(m[1], id):
				if seq, err := strconv.ParseInt(m[2], 10, 64); err == nil {
					highest = max(highest, seq)
				}
			}
		}
		require.Equal(t, want, heard)
		require.Equal(t, highest, int64(h.topic(followed).want))
		require.Equal(t, dirty || highest > 5, len(h.takeDirty()) == 1, "the hub reads the log again")
		tail, _ := h.topic(followed).position()
		require.Equal(t, task.Seq(5), tail.Seq, "a hint carries no event")
	})
}
