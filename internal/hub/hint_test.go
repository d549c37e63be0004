package hub

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// FuzzHear passes any payload to the hub, because any client of the database can send one. Each valid entry is acted
// on once, in order; invalid entries are ignored.
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
