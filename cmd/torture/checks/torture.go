package checks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/holdfast-a2a/holdfast/internal/rpc/client"
)

// Options describe a run.
type Options struct {
	// URLs are the addresses of one server: of its replicas, or of a balancer.
	URLs []string
	// Version and Binding say how to call it, as in cards; "": the newest that the card offers.
	Version, Binding string
	Header           http.Header // sent with every request: the credential of the owner of the tasks
	Other            http.Header // sent instead of Header by another caller; nil without one
	Scripts          Scripts
	// Faults are injected one after the other. Without them, the checks of restarts are not applicable.
	Faults []Fault
	// Seed decides the choices of the run. Times on the wire differ all the same.
	Seed   uint64
	Checks []string // names; nil: all
	// Load is how many tasks of a kind a check has at a time; 0: 8.
	Load int
	// Patience is how long a server that works may take for an answer or a task, or to come back after a start; 0: 30 s.
	Patience time.Duration
	// HookListen is the address of the receiver of webhooks, and HookURL its URL as the server reaches it; "": no receiver, and
	// the URL of the address.
	HookListen, HookURL string
	// Progress gets a line for each step; nil: none.
	Progress func(format string, args ...any)

	dial   func(ctx context.Context, network, address string) (net.Conn, error) // nil: with the network of the machine
	listen func(ctx context.Context, network, address string) (net.Listener, error)
}

// Fault is something that breaks the server, and what repairs it.
type Fault struct {
	Kill, Start func(context.Context) error
}

// Command returns a function that runs a command of the shell. Processes that the command leaves in the background go on.
func Command(line string) func(context.Context) error {
	return func(ctx context.Context) error {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, "sh", "-c", line)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, time.Second
		if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) { // that is a background process with the output
			return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(out.String()))
		}
		return nil
	}
}

// Names returns the names of all checks, in the order in which they run.
func Names() []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Run makes the checks and reports their verdicts. The error says why there is no report: the server cannot be reached, or ctx
// has ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Load == 0 {
		o.Load = 8
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	if o.dial != nil {
		transport.DialContext = o.dial
	}
	if o.listen == nil {
		o.listen = new(net.ListenConfig).Listen
	}
	defer transport.CloseIdleConnections()
	r := &run{o: o, wire: &recorder{next: transport}, rng: rand.New(rand.NewPCG(o.Seed, 0))}
	defer r.close()
	report := &Report{Scripts: o.Scripts.Name, Seed: o.Seed, Faults: len(o.Faults), Began: time.Now()}
	for _, url := range o.URLs {
		p, err := r.open(ctx, url, o.Version, o.Binding, o.Header)
		if err != nil {
			return nil, err
		}
		r.peers = append(r.peers, p)
		card := p.c.Card()
		report.Targets = append(report.Targets, Target{URL: url, Agent: printable(strings.TrimSpace(card.Name + " " + card.Version)), Version: p.c.Version(), Binding: p.c.Binding()})
		if o.Other != nil {
			other, err := r.open(ctx, url, o.Version, o.Binding, o.Other)
			if err != nil {
				return nil, err
			}
			r.others = append(r.others, other)
		}
	}
	for _, c := range checks {
		if o.Checks != nil && !slices.Contains(o.Checks, c.name) {
			continue
		}
		report.Results = append(report.Results, r.check(ctx, c))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	report.Seconds = time.Since(report.Began).Seconds()
	return report, nil
}

// run is a run against a server.
type run struct {
	o      Options
	wire   *recorder
	peers  []*peer // for each address
	others []*peer // the same as the other caller
	all    []*peer // to close

	mu    sync.Mutex
	rng   *rand.Rand
	after *aftermath // of the faults; nil before they were injected
}

// open makes the client for an address. It reads the card, so it fails if the server cannot be reached.
func (r *run) open(ctx context.Context, url, version, binding string, header http.Header) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	c, err := client.Open(ctx, client.Options{Server: url, Version: version, Binding: binding, Header: header, HTTP: &http.Client{Transport: r.wire}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	p := &peer{run: r, c: c, url: url}
	r.all = append(r.all, p)
	return p, nil
}

func (r *run) close() {
	for _, p := range r.all {
		p.c.Close()
	}
}

// number returns a random number below n.
func (r *run) number(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rng.IntN(n)
}

// any returns one of the addresses.
func (r *run) any() *peer { return r.peers[r.number(len(r.peers))] }

// two returns two addresses, which differ if there are several.
func (r *run) two() (a, b *peer) {
	i := r.number(len(r.peers))
	return r.peers[i], r.peers[(i+1)%len(r.peers)]
}

// check makes one check.
func (r *run) check(ctx context.Context, c check) *Result {
	if !c.continues {
		r.wire.forget()
	}
	p := &probe{run: r, check: c, result: &Result{Check: c.name, Clause: c.clause, Did: map[string]int{}}}
	began := time.Now()
	c.do(ctx, p)
	p.mu.Lock()
	defer p.mu.Unlock()
	result := p.result
	result.Seconds = time.Since(began).Seconds()
	switch {
	case len(result.Violations) > 0:
		result.Verdict, result.Reason = Violated, ""
	case p.skipped != "":
		result.Verdict, result.Reason = NotApplicable, p.skipped
	case p.doubt != "":
		result.Verdict, result.Reason = Unknown, p.doubt
	case len(result.Did) == 0:
		result.Verdict, result.Reason = Unknown, "nothing was tested"
	default:
		result.Verdict = Pass
	}
	r.o.Progress("%s: %s", c.name, result.Verdict)
	return result
}

// probe is one check while it is made.
type probe struct {
	*run
	check  check
	result *Result

	mu             sync.Mutex
	skipped, doubt string
}

// most is the most violations of a check that a report lists.
const most = 10

// violation records that the server has broken the clause. The evidence is about the task.
func (p *probe) violation(taskID, format string, args ...any) {
	p.violated(taskID, taskID, format, args...)
}

// violated is violation with evidence about something else than a task.
func (p *probe) violated(taskID, about, format string, args ...any) {
	evidence := p.wire.evidence(about)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.result.Violations) >= most {
		p.result.More++
		return
	}
	p.result.Violations = append(p.result.Violations, Violation{Text: printable(fmt.Sprintf(format, args...)), Task: taskID, Evidence: evidence})
}

// skip records why the check does not apply to the server.
func (p *probe) skip(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skipped = printable(fmt.Sprintf(format, args...))
}

// unsure records that a part of the check could not be made.
func (p *probe) unsure(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubt == "" {
		p.doubt = printable(fmt.Sprintf(format, args...))
	}
}

// count records what the check has done.
func (p *probe) count(what string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.result.Did[what] += n
	}
}

// failed records that the server refused a request that is right, or could not be reached.
func (p *probe) failed(taskID, doing string, err error) {
	if client.Temporary(err) || errors.Is(err, context.Canceled) {
		p.unsure("%s: %v", doing, err)
		return
	}
	p.violation(taskID, "%s: %v", doing, err)
}

// each does something n times at a time.
func (p *probe) each(n int, do func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { do(i) })
	}
	wait.Wait()
}

// printable removes control characters of texts that come from the server.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || !unicode.IsControl(c) {
			return c
		}
		return -1
	}, strings.ToValidUTF8(s, "\ufffd"))
}
