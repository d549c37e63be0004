package hub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// A payload is the sender's name and then entries, separated by commas:
//
//	<32 hex>:<seq>   the log of this task has come to seq
//	q:<agent>        there is something to claim
//	c:<32 hex>       this running task was asked to end
//	x:<32 hex>       this task was deleted
//	n:<32 hex>       the agent of this task says that it has news
//	p:               webhooks have something to deliver
//	k:<id>           this API key was revoked
//	r:               hints were lost; look at everything
//	h:               a process has started
//	t:<nonce>        the sender listens for itself
//
// maxPayload keeps below NOTIFY's 8,000 bytes.
const maxPayload = 7900

// sendPause is how long a process waits after a send, for each other process beyond the first. Every
// send wakes the listeners of all processes. So the more there are, the less often each may send:
// otherwise the work would grow with the square of their number.
const (
	sendPause    = time.Millisecond
	maxSendPause = 25 * time.Millisecond
)

// notifier sends hints after commits. When it is idle it sends at once. Hints that arrive during a
// send, or during the pause after it, go out together in the next one.
type notifier struct {
	opt   Options
	name  string // the name of this process in payloads
	peers atomic.Int64
	tests atomic.Int64 // self-tests that were sent

	mu    sync.Mutex
	seqs  map[task.ID]task.Seq
	hints map[string]struct{} // the other entries
	wake  chan struct{}
}

func newNotifier(o Options) *notifier {
	var b [6]byte
	_, _ = rand.Read(b[:])
	n := &notifier{
		opt: o, name: hex.EncodeToString(b[:]), wake: make(chan struct{}, 1), seqs: map[task.ID]task.Seq{}, hints: map[string]struct{}{},
	}
	// Until the first count, assume that there are other processes.
	n.peers.Store(1)
	return n
}

func (n *notifier) ring() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *notifier) alone() bool { return n.peers.Load() == 0 }

// pause is the shortest time between two sends.
func (n *notifier) pause() time.Duration {
	return min(time.Duration(max(n.peers.Load()-1, 0))*sendPause, maxSendPause)
}

func (n *notifier) events(evs []*task.Event) {
	if n.alone() {
		return
	}
	n.mu.Lock()
	for _, e := range evs {
		// No other replica can have a subscriber to a task at its first event.
		if e.Seq > 1 {
			n.seqs[e.Task] = max(n.seqs[e.Task], e.Seq)
		}
	}
	n.mu.Unlock()
	n.ring()
}

func (n *notifier) advanced(id task.ID, seq task.Seq) {
	n.events([]*task.Event{{Task: id, Seq: max(seq, 2)}})
}

func (n *notifier) ready(agent string)  { n.hint("q:" + agent) }
func (n *notifier) cancel(id task.ID)   { n.hint("c:" + hex.EncodeToString(id[:])) }
func (n *notifier) notified(id task.ID) { n.hint("n:" + hex.EncodeToString(id[:])) }
func (n *notifier) pushesDue()          { n.hint("p:") }

func (n *notifier) removed(ids []task.ID) {
	for _, id := range ids {
		n.hint("x:" + hex.EncodeToString(id[:]))
	}
}

// hint queues an entry, unless there is no other process.
func (n *notifier) hint(entry string) {
	if !n.alone() {
		n.send(entry)
	}
}

// send queues an entry.
func (n *notifier) send(entry string) {
	n.mu.Lock()
	n.hints[entry] = struct{}{}
	n.mu.Unlock()
	n.ring()
}

// take renders all queued hints into payloads and empties the queue.
func (n *notifier) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	var b strings.Builder
	add := func(entry string) {
		if b.Len() > 0 && b.Len()+1+len(entry) > maxPayload {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(n.name)
		}
		b.WriteByte(',')
		b.WriteString(entry)
	}
	for entry := range n.hints {
		add(entry)
	}
	for id, seq := range n.seqs {
		add(hex.EncodeToString(id[:]) + ":" + strconv.FormatInt(int64(seq), 10))
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	clear(n.seqs)
	clear(n.hints)
	return out
}

// sender is the connection that sends payloads.
type sender interface {
	Send(ctx context.Context, payloads []string) error
}

func (n *notifier) run(ctx context.Context) error {
	conn := store.NewNotifier(n.opt.URL)
	defer conn.Close()
	return n.serve(ctx, conn)
}

// serve sends the queued hints until ctx ends.
func (n *notifier) serve(ctx context.Context, conn sender) error {
	var sent time.Time
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return nil
		}
		if wait := n.pause() - time.Since(sent); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done(): // a run that was returned at last shall not wait for a poll
				last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
				defer cancel()
				_ = conn.Send(last, n.take())
				return nil
			}
		}
		payloads := n.take()
		if len(payloads) == 0 {
			continue
		}
		sent = time.Now()
		if err := conn.Send(ctx, payloads); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			n.opt.Log.Warn("hints were lost; other replicas find the events by polling", "error", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
			n.send("r:")
			continue
		}
		if slices.ContainsFunc(payloads, func(p string) bool { return strings.Contains(p, ",t:") }) {
			n.tests.Add(1)
		}
	}
}

// hear handles a payload from the LISTEN connection.
func (h *Hub) hear(payload string) {
	sender, rest, _ := strings.Cut(payload, ",")
	own := sender == h.notify.name
	for rest != "" {
		var entry string
		entry, rest, _ = strings.Cut(rest, ",")
		head, tail, ok := strings.Cut(entry, ":")
		if !ok {
			continue
		}
		switch {
		case head == "t":
			if own {
				h.heardSelf(tail)
			}
		case own:
			// The announcement has already reached the topics and parts of this process.
		case head == "h":
			h.notify.peers.CompareAndSwap(0, 1)
		case head == "r":
			h.mayHaveMissed()
		case head == "p":
			h.opt.Signals.Webhooks.Hear(struct{}{})
		case head == "k":
			h.opt.Signals.Keys.Hear(tail)
		case head == "q":
			h.opt.Signals.Queues.Hear(tail)
		case head == "x":
			if id, ok := parseHex(tail); ok {
				h.doubt(id)
				h.opt.Signals.Removed.Hear([]task.ID{id})
			}
		case head == "c":
			if id, ok := parseHex(tail); ok {
				h.opt.Signals.Cancels.Hear(id)
			}
		case head == "n":
			if id, ok := parseHex(tail); ok {
				h.opt.Signals.Notified.Hear(id)
			}
		default:
			id, ok := parseHex(head)
			seq, err := strconv.ParseInt(tail, 10, 64)
			if ok && err == nil {
				h.hinted(id, task.Seq(seq))
				h.opt.Signals.Growth.Hear(signal.Growth{Task: id, Seq: task.Seq(seq)})
			}
		}
	}
}

// mayHaveMissed makes every part look at the database, because hints of any kind may have been
// lost. Cancel requests and notifications need no signal: the pool finds cancels when it next compares its
// runs with the database, and runs also read their agents' tasks without notifications.
func (h *Hub) mayHaveMissed() {
	h.markAll()
	h.opt.Signals.Missed.Hear(struct{}{})
	h.opt.Signals.Queues.Hear("")
	h.opt.Signals.Webhooks.Hear(struct{}{})
	h.opt.Signals.Keys.Hear("")
}

func parseHex(s string) (id task.ID, ok bool) {
	if len(s) != 32 {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil
}
