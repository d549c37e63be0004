package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Mode says how to follow a task to its end.
type Mode string

// The modes.
const (
	Blocking Mode = "blocking" // one message/send that waits
	Stream   Mode = "stream"   // one message/stream
	Poll     Mode = "poll"     // a message/send that does not wait, then tasks/get until the task has ended
)

// Modes are all modes.
var Modes = []Mode{Blocking, Stream, Poll}

// Options describe a load.
type Options struct {
	Targets  []*Target // the loops use them in turn
	Mode     Mode
	Text     string
	InFlight int
	// Count is the number of tasks. If it is 0, the load starts no task after Duration.
	Count    int
	Duration time.Duration
	// PollEvery is the pause before each tasks/get.
	PollEvery time.Duration
	// Timeout bounds each task; 0 means a minute.
	Timeout time.Duration
}

// Result is the result of a load.
type Result struct {
	Elapsed   time.Duration // from the first request to the last answer
	Tasks     int           // completed tasks
	Chunks    int           // chunks that streams received
	Polls     int
	Latencies []time.Duration // of the completed tasks, sorted
	Errors    map[string]int  // of the other tasks, by kind
	Example   error           // one of them
}

// Failed returns the number of tasks that were not completed.
func (r *Result) Failed() int {
	n := 0
	for _, k := range r.Errors {
		n += k
	}
	return n
}

// TasksPerSecond returns the rate of completed tasks.
func (r *Result) TasksPerSecond() float64 { return float64(r.Tasks) / r.Elapsed.Seconds() }

// ChunksPerSecond returns the rate of received chunks.
func (r *Result) ChunksPerSecond() float64 { return float64(r.Chunks) / r.Elapsed.Seconds() }

// Quantile returns the latency below which the fraction q of the completed tasks stayed.
func (r *Result) Quantile(q float64) time.Duration { return Quantile(r.Latencies, q) }

// Quantile returns a quantile of sorted values, or 0 if there are no values.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Run loads the targets and blocks until the load ends. It fails if a server cannot be reached at all, or with the
// error of ctx and the result so far. Failed tasks are counted in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	loops := make([]*loop, o.InFlight)
	defer func() {
		for _, l := range loops {
			if l.conn != nil {
				_ = l.conn.Close()
			}
		}
	}()
	var dials errgroup.Group
	for i := range loops {
		loops[i] = &loop{Options: o, target: o.Targets[i%len(o.Targets)], errors: map[string]int{}}
		dials.Go(func() error { return loops[i].dial(ctx) })
	}
	if err := dials.Wait(); err != nil {
		return nil, err
	}
	var left atomic.Int64
	left.Store(int64(o.Count))
	start := time.Now()
	more := func() bool {
		if ctx.Err() != nil {
			return false
		}
		if o.Count > 0 {
			return left.Add(-1) >= 0
		}
		return time.Since(start) < o.Duration
	}
	var wg sync.WaitGroup
	for _, l := range loops {
		wg.Go(func() { l.run(ctx, more) })
	}
	wg.Wait()
	r := &Result{Elapsed: time.Since(start), Errors: map[string]int{}}
	for _, l := range loops {
		r.Chunks += l.chunks
		r.Polls += l.polls
		r.Latencies = append(r.Latencies, l.latencies...)
		for kind, n := range l.errors {
			r.Errors[kind] += n
		}
		if r.Example == nil {
			r.Example = l.example
		}
	}
	r.Tasks = len(r.Latencies)
	slices.Sort(r.Latencies)
	return r, ctx.Err()
}

// loop runs tasks one after the other.
type loop struct {
	Options
	target *Target
	conn   *Conn
	send   *sender

	chunks, polls int
	latencies     []time.Duration
	errors        map[string]int
	example       error
}

func (l *loop) dial(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	l.conn, err = l.target.Dial(ctx)
	return err
}

// afterFailure is a pause, so that a loop does not flood a server that refuses everything.
const afterFailure = 20 * time.Millisecond

func (l *loop) run(ctx context.Context, more func() bool) {
	method := "message/send"
	if l.Mode == Stream {
		method = "message/stream"
	}
	l.send = newSender(l.target, method, l.Text, l.Mode == Blocking)
	for more() {
		start := time.Now()
		err := l.task(ctx)
		if err == nil {
			l.latencies = append(l.latencies, time.Since(start))
			continue
		}
		if ctx.Err() != nil {
			return // a task that we interrupted is not a failure
		}
		l.errors[kind(err)]++
		l.example = err
		sleep(ctx, afterFailure)
	}
}

// task creates a task and follows it to its end.
func (l *loop) task(ctx context.Context) error {
	if l.conn == nil || l.conn.last {
		if l.conn != nil {
			_ = l.conn.Close()
		}
		if err := l.dial(ctx); err != nil {
			l.conn = nil
			return err
		}
	}
	if err := l.conn.SetDeadline(time.Now().Add(l.Timeout)); err != nil {
		return err
	}
	conn := l.conn
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	err := l.follow(ctx)
	// A connection is reusable only after an answer was read to its end.
	if err != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
	return err
}

func (l *loop) follow(ctx context.Context) error {
	req := l.send.next()
	switch l.Mode {
	case Stream:
		return l.stream(req)
	case Poll:
		return l.poll(ctx, req)
	default:
		return l.blocking(req)
	}
}

func (l *loop) blocking(req []byte) error {
	body, err := l.conn.Call(req)
	if err != nil || isCompleted(body) {
		return err
	}
	o, err := ReadOutcome(body)
	return verdict(o, err)
}

func (l *loop) stream(req []byte) error {
	var last []byte
	err := l.conn.Stream(req, func(data []byte) error {
		if IsChunk(data) {
			l.chunks++
			return nil
		}
		last = append(last[:0], data...)
		return nil
	})
	if err != nil {
		return err
	}
	if last == nil {
		return errUnfinished
	}
	o, err := ReadOutcome(last)
	return verdict(o, err)
}

func (l *loop) poll(ctx context.Context, req []byte) error {
	body, err := l.conn.Call(req)
	if err != nil || isCompleted(body) {
		return err
	}
	o, err := ReadOutcome(body)
	var get []byte
	for err == nil && !o.Final {
		if get == nil {
			get = l.target.Request("tasks/get", TaskQuery(o.TaskID), "")
		}
		sleep(ctx, l.PollEvery)
		l.polls++
		if body, err = l.conn.Call(get); err != nil || isCompleted(body) {
			return err
		}
		o, err = ReadOutcome(body)
	}
	return verdict(o, err)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// taskError is a task that did not complete.
type taskError struct{ state string }

func (e *taskError) Error() string { return "the task was left " + e.state }

var errUnfinished = errors.New("the answer came before the task settled")

func verdict(o Outcome, err error) error {
	switch {
	case err != nil:
		return err
	case !o.Final:
		return errUnfinished
	case o.State != "" && o.State != "completed":
		return &taskError{o.State}
	}
	return nil
}

// kind returns the name under which an error is counted.
func kind(err error) string {
	var status *StatusError
	var rpc *RPCError
	var task *taskError
	var network net.Error
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("HTTP %d %s", status.Status, http.StatusText(status.Status))
	case errors.As(err, &rpc):
		return fmt.Sprintf("JSON-RPC %d", rpc.Code)
	case errors.As(err, &task):
		return "task " + task.state
	case errors.Is(err, errUnfinished):
		return "task not settled"
	case errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection cut"
	}
	return "other"
}
