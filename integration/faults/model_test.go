package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

var (
	modelRuns     = flag.Int("model.runs", 2, "sequences of random operations to play")
	modelSeed     = flag.Uint64("model.seed", 0, "seed of the first sequence, the others count on; 0: a new one")
	modelOps      = flag.Int("model.ops", 120, "operations of a sequence")
	modelReplicas = flag.Int("model.replicas", 2, "replicas")
)

// Random operations run on real replicas, some of which are killed and stopped meanwhile, and are compared with a model of what the
// protocol and the demo agent allow. The seed fixes the sequence, but the machine decides each race: a sequence that fails may need
// several runs to fail again.
func TestRandomOperationsAgainstTheModel(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixMilli())
	}
	w := newWorld(clustertest.NewDB(t), []string{"a", "b", "c"}[:*modelReplicas]...)
	performed, killed := map[opKind]int{}, 0
	for i := range *modelRuns {
		ops := generate(seed+uint64(i), *modelOps)
		if found := w.play(ops); len(found) > 0 {
			t.Logf("sequence %d of %d failed; again with -model.seed %d -model.ops %d -model.replicas %d", i+1, *modelRuns, seed+uint64(i), *modelOps, *modelReplicas)
			t.Fatal(tell(ops, found))
		}
		for _, d := range w.all {
			performed[d.kind]++
		}
	}
	for _, o := range w.outages {
		killed += len(o)
	}
	t.Logf("seed %d, %d sequences, %d outages: %v", seed, *modelRuns, killed, performed)
}

// tell reports a violation, most likely the first one.
func tell(ops []*op, found []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d objections; the first:\n%s\nplayed:\n", len(found), found[0])
	for _, o := range ops {
		fmt.Fprintf(&b, "  %s\n", o)
	}
	return b.String()
}

// messages are texts of messages, by their frequency.
var messages = []struct {
	weight int
	text   func(r *rand.Rand, n int) string
}{
	{5, func(_ *rand.Rand, n int) string { return fmt.Sprintf("ask:what of %d?", n) }},
	{4, func(_ *rand.Rand, n int) string { return fmt.Sprintf("echo:%d", n) }},
	{6, func(r *rand.Rand, _ int) string {
		return fmt.Sprintf("chunks=%d size=%d delay=%dms", 1+r.IntN(60), r.IntN(200), r.IntN(40))
	}},
	{3, func(r *rand.Rand, _ int) string { return fmt.Sprintf("sleep=%dms", r.IntN(300)) }},
	{3, func(r *rand.Rand, _ int) string { return fmt.Sprintf("wait=%dms", r.IntN(1000)) }},
	{3, func(*rand.Rand, int) string { return "hold" }},
	{2, func(*rand.Rand, int) string { return "auth" }},
	{1, func(*rand.Rand, int) string { return "data" }},
	{1, func(*rand.Rand, int) string { return "crash" }},
	{1, func(*rand.Rand, int) string { return "message:bare" }},
	{1, func(_ *rand.Rand, n int) string { return fmt.Sprintf("fail:%d", n) }},
	{1, func(_ *rand.Rand, n int) string { return fmt.Sprintf("reject:%d", n) }},
	{1, func(_ *rand.Rand, n int) string { return fmt.Sprintf("words %d", n) }},
}

// generate makes a sequence, the same one for the same seed.
func generate(seed uint64, n int) []*op {
	r := rand.New(rand.NewPCG(seed, 0))
	g := &generator{r: r}
	for len(g.ops) < n {
		g.add()
	}
	return g.ops[:n]
}

type generator struct {
	r     *rand.Rand
	ops   []*op
	tasks []int // the operations that created one
	keyed []int // those with an Idempotency-Key
}

func (g *generator) text(n int) string {
	sum := 0
	for _, s := range messages {
		sum += s.weight
	}
	at := g.r.IntN(sum)
	for _, s := range messages {
		if at -= s.weight; at < 0 {
			return s.text(g.r, n)
		}
	}
	panic("unreachable")
}

// task picks a task, mostly one of the newest, where most races happen.
func (g *generator) task() int {
	switch x := g.r.IntN(50); {
	case x == 0:
		return -1
	case x < 40:
		return g.tasks[len(g.tasks)-1-g.r.IntN(min(2, len(g.tasks)))]
	}
	return g.tasks[g.r.IntN(len(g.tasks))]
}

func (g *generator) add() {
	o := &op{
		n: len(g.ops), on: g.r.IntN(6), d: a2atest.Old[g.r.IntN(2)], wait: g.r.IntN(2) == 0, keyed: g.r.IntN(3) == 0,
		history: []int{-1, -1, 0, 1, 2, 50}[g.r.IntN(6)], join: g.r.IntN(3) == 0,
	}
	// Half of them follow at once, to overlap.
	if g.r.IntN(2) == 0 {
		o.pause = g.r.IntN(40)
	}
	x := g.r.IntN(100)
	if len(g.tasks) == 0 {
		x = 0
	}
	switch {
	case x < 22:
		o.kind, o.task = []opKind{opSend, opStream}[g.r.IntN(2)], o.n
		o.text = g.text(o.n)
		g.tasks = append(g.tasks, o.n)
	case x < 44:
		o.kind, o.task = []opKind{opSend, opStream}[g.r.IntN(2)], g.task()
		o.text = g.text(o.n)
	case x < 50 && len(g.keyed) > 0:
		o.kind, o.like = opRepeat, g.keyed[len(g.keyed)-1-g.r.IntN(min(3, len(g.keyed)))]
	case x < 52 && len(g.keyed) > 0:
		o.kind, o.like, o.text = opMisuse, g.keyed[g.r.IntN(len(g.keyed))], g.text(o.n)
	case x < 64:
		o.kind, o.task = opGet, g.task()
	case x < 74:
		o.kind, o.task = opCancel, g.task()
	case x < 90:
		o.kind, o.task = opResume, g.task()
		o.after = []int{fromSnapshot, 0, wholeLog, wholeLog, wholeLog + 1, wholeLog + 1000, g.r.IntN(wholeLog), g.r.IntN(wholeLog)}[g.r.IntN(8)]
		o.join = false
	case x < 94:
		o.kind, o.task = opCut, g.task()
	case x < 97:
		o.kind = []opKind{opKill, opKill, opStop}[g.r.IntN(3)]
	default:
		o.kind = opStart
	}
	if o.keyed && (o.kind == opSend || o.kind == opStream) {
		g.keyed = append(g.keyed, o.n)
	}
	// Nothing would end a stream, or an answer that waits, of a task that needs a cancel.
	sends := o.kind == opSend && o.d == a2atest.V03 && !o.wait
	o.join = o.join && (sends || o.kind == opGet || o.kind == opCancel)
	g.ops = append(g.ops, o)
}
