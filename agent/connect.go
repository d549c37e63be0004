package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/worker/connect"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// ConnectOptions describe a worker. The zero value is possible.
type ConnectOptions struct {
	Name        string // for people; default: the name of the host
	Version     string // of the agents' code, such as a commit; default: the one that the Go tool has recorded
	Concurrency int    // how many runs of each agent at a time; default 10
	// Credential returns an API key or a token with the scope worker:<agent> for each agent. It is called for each request. Default:
	// the content of the file that HOLDFAST_API_KEY_FILE or HOLDFAST_TOKEN_FILE names, read each time, or HOLDFAST_API_KEY.
	Credential func() (string, error)
	// Drain is how long runs may go on after the end of the context or the first signal; default 30 seconds. Then the server
	// gives them to other workers.
	Drain time.Duration
	// Client sends the requests. Default: one that follows no redirects. Its Timeout must be zero, because requests wait.
	Client *http.Client
	Log    *slog.Logger // default: none
}

// ErrVersion is the error of Connect if the server does not speak this version of the worker API.
var ErrVersion = connect.ErrVersion

// Connect makes this program a worker of a Holdfast server: it claims runs of these agents, by the names that they have in the
// server's configuration, with executor: {kind: worker}. The program needs no address of its own, and no database. An empty
// address means the variable HOLDFAST_URL.
//
// Connect blocks until ctx ends or the process gets SIGINT, SIGTERM or SIGHUP. Then the runs may finish; after Drain, the others go
// on in another worker, without costing a try. A second SIGINT or SIGTERM gives them back at once. Connect also returns when an operator has
// retired the worker and its runs have ended. The error is nil then. While the server is away, or refuses the credential, Connect
// goes on trying.
//
// Executors see the same as in the server's process, with these differences. Run.Task reads the conversation and the
// artifacts over the network. References have the bounds of the agent's history. An Unavailable is retried and counts as a try. Cancel
// of a Canceler is called at most once for each run, by the process that had it, and not for tasks without a run.
func Connect(ctx context.Context, address string, agents map[string]Executor, o ConnectOptions) error {
	options, err := o.options(cmp.Or(address, os.Getenv("HOLDFAST_URL")), agents)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	hurry, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	go func() {
		for {
			select {
			case s := <-signals:
				if ctx.Err() != nil && s != syscall.SIGHUP { // a terminal that closes may send SIGHUP twice
					giveBack()
				}
				stop()
			case <-hurry.Done():
				return
			}
		}
	}()
	return connect.Run(ctx, hurry, *options)
}

func (o ConnectOptions) options(address string, agents map[string]Executor) (*connect.Options, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent: the address of the server: %w", err)
	case address == "":
		return nil, errors.New("agent: no address of a server; pass it to Connect, or set HOLDFAST_URL, such as http://127.0.0.1:8080")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("agent: %q is not the address of a server; write http://127.0.0.1:8080", u.Redacted())
	case len(agents) == 0:
		return nil, errors.New("agent: Connect needs at least one agent")
	case len(agents) > maxAgents:
		return nil, fmt.Errorf("agent: Connect takes at most %d agents", maxAgents)
	case o.Concurrency < 0:
		return nil, fmt.Errorf("agent: Concurrency: %d is less than 1", o.Concurrency)
	}
	host, _ := os.Hostname() // a worker without a name works, too
	out := &connect.Options{
		URL: address, Agents: map[string]*connect.Agent{}, Concurrency: cmp.Or(o.Concurrency, 10), Drain: cmp.Or(o.Drain, 30*time.Second),
		Name: cmp.Or(o.Name, host), Version: cmp.Or(o.Version, revision()), SDK: "holdfast go/" + runtime.Version(),
		Credential: o.Credential, HTTP: o.Client, Log: o.Log,
	}
	if out.Credential == nil {
		out.Credential = credential
	}
	if out.HTTP == nil {
		out.HTTP = connect.NewClient()
	}
	if out.Log == nil {
		out.Log = slog.New(slog.DiscardHandler)
	}
	for name, e := range agents {
		if e == nil {
			return nil, fmt.Errorf("agent: %q has no Executor", name)
		}
		out.Agents[name] = remote(e)
	}
	return out, nil
}

// maxAgents is how many agents a worker may name (docs/worker-api.yaml).
const maxAgents = 100

// remote makes an Executor one that a worker can run.
func remote(e Executor) *connect.Agent {
	out := &connect.Agent{Execute: func(ctx context.Context, run *executor.Run, m *connect.Memory, to executor.Emitter) error {
		r := fromRun(run)
		r.memory = m
		return e.Execute(ctx, r, &emitter{out: to, turn: run.Turn})
	}}
	if to, ok := e.(Canceler); ok {
		out.Cancel = func(ctx context.Context, c *executor.Cancellation) error { return to.Cancel(ctx, fromCancellation(c)) }
	}
	return out
}

// credential reads the credential that the environment names.
func credential() (string, error) {
	for _, name := range []string{"HOLDFAST_API_KEY_FILE", "HOLDFAST_TOKEN_FILE"} {
		if path := os.Getenv(name); path != "" {
			raw, err := os.ReadFile(path)
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			return string(bytes.TrimSpace(raw)), nil
		}
	}
	return os.Getenv("HOLDFAST_API_KEY"), nil
}

// revision is the commit of the program, or its module's version.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}
