package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/auth"
	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/resumeurl"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/web"
	"github.com/holdfast-a2a/holdfast/internal/worker"
	"github.com/holdfast-a2a/holdfast/internal/worker/calls"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/command"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/demo"
	httpexec "github.com/holdfast-a2a/holdfast/internal/worker/executor/http"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/openai"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/wire"
)

// agents has each configured agent in the forms that the other parts need.
type agents struct {
	names      []string
	engine     []engine.Agent
	calls      []calls.Agent
	worker     []worker.Agent           // without the worker role they have no executor
	history    map[string]wire.History  // of run documents
	leases     map[string]time.Duration // of the runs of remote workers, by agent
	rpc        []rpc.Agent
	operation  []dispatch.Agent
	resumes    map[string]resumeurl.Agent
	cancelWait time.Duration
	fronts     fronts
	cards      map[string]*a2a.Cards // of the servers behind fronts, as they were at the start
}

// callDepth is how many calls may lead to a task that an agent calls.
const callDepth = 8

func buildAgents(ctx context.Context, cfg *config.Config, o Options, m *telemetry.Metrics, log *slog.Logger) (*agents, error) {
	fronts, err := buildFronts(cfg, m, log)
	if err != nil {
		return nil, err
	}
	out := &agents{
		fronts: fronts, cards: fronts.read(ctx, log), history: map[string]wire.History{}, leases: map[string]time.Duration{}, resumes: map[string]resumeurl.Agent{},
	}
	var mistakes []error
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		out.names = append(out.names, a.Name)
		face := newFace(a, out.cards[a.Name])
		input, output := face.modes()
		out.resumes[a.Name] = resumeurl.Agent{ByGet: a.ResumeByGet, MaxBody: mostResumed}
		out.engine = append(out.engine, engine.Agent{
			Name: a.Name, RejectBusy: a.OnBusy == config.BusyReject, DirectReplies: a.DirectReplies,
			DedupeMessages: a.DedupeMessageID, TenantVisible: a.Auth.Visibility == config.VisibleToTenant,
			Limits:     store.Limits{Live: cmp.Or(a.Limits.LiveTasks, cfg.Limits.PerPrincipal.LiveTasks), Queue: a.Limits.Queue},
			InputModes: input, OutputModes: output,
		})
		e := &out.engine[i]
		out.calls = append(out.calls, calls.Agent{
			Name: a.Name, Schemes: a.Auth.Schemes, Scope: a.Auth.Scope, RejectBusy: e.RejectBusy,
			Limits: e.Limits, MaxDepth: callDepth, Recursive: a.RecursiveCalls, TenantVisible: e.TenantVisible,
		})
		out.operation = append(out.operation, dispatch.Agent{Name: a.Name, NoStreams: !a.Card.Streaming, Extensions: face.extensions(), Forward: fronts.forward(a.Name)})
		public, extended := face.cards(cfg)
		out.rpc = append(out.rpc, rpc.Agent{
			Name: a.Name, Default: a.Default, Card: public, Extended: extended,
			Gate: auth.Gate{Schemes: a.Auth.Schemes, Scope: a.Auth.Scope},
		})
		// A cancel is answered when the run has ended or the grace is over. Without hints, the worker learns of the
		// cancel in its next round.
		out.cancelWait = max(out.cancelWait, a.Limits.CancelGrace+cfg.Worker.LeaseTTL/3+2*time.Second)
		out.history[a.Name] = history(a)
		var exec executor.Executor
		remote := a.Executor.Kind == config.ExecutorWorker
		if remote {
			out.leases[a.Name] = a.Executor.Worker.Lease
		}
		if cfg.HasRole(config.RoleWorker) && !remote {
			if exec, err = buildExecutor(cfg, a, o, fronts, m, log); err != nil {
				mistakes = append(mistakes, fmt.Errorf("agent %s: %w", a.Name, err))
				continue
			}
		}
		out.worker = append(out.worker, worker.Agent{
			Name: a.Name, Executor: exec, Concurrency: a.Limits.Concurrency, MaxAttempts: a.Limits.MaxAttempts,
			RunTimeout: a.Limits.RunTimeout, InactivityTimeout: a.Limits.InactivityTimeout,
			Backoff: a.Limits.Backoff, CancelGrace: a.Limits.CancelGrace, DirectReplies: a.DirectReplies,
			MaxArtifacts: int64(a.Limits.MaxArtifacts), UnreachableFor: a.Limits.UnreachableFor,
			MaxState: int64(a.Limits.MaxState), MaxEvent: int(a.Limits.MaxEvent), ExtensionParams: extensionParams(face.extended),
			MaxCalls: a.Limits.Calls, Remote: remote,
		})
	}
	return out, errors.Join(mistakes...)
}

func buildExecutor(cfg *config.Config, a *config.Agent, o Options, fronts fronts, m *telemetry.Metrics, log *slog.Logger) (executor.Executor, error) {
	log = log.With("agent", a.Name)
	switch a.Executor.Kind {
	case config.ExecutorGo:
		if e := o.Executors[a.Name]; e != nil {
			return e, nil
		}
		return nil, errors.New("executor.kind is go, but the program brings no agent of this name")
	case config.ExecutorA2A:
		return fronts[a.Name], nil
	case config.ExecutorDemo:
		return demo.New(), nil
	case config.ExecutorHTTP:
		h := a.Executor.HTTP
		return httpexec.New(httpexec.Options{
			URL: h.URL, CancelURL: h.CancelURL, Headers: h.Headers, HeaderTimeout: h.HeaderTimeout,
			History: history(a), MaxEvent: int(a.Limits.MaxEvent), Observe: m.Upstream(a.Name, "http"),
		})
	case config.ExecutorCommand:
		c := a.Executor.Command
		return command.New(command.Options{
			Argv: c.Argv, Dir: c.Dir, Env: c.Env, Inherit: c.Inherit, UID: c.UID, GID: c.GID,
			History: history(a), MaxEvent: int(a.Limits.MaxEvent), Log: log,
		})
	case config.ExecutorOpenAI:
		return buildModel(cfg, a, m, log)
	case config.ExecutorWorker: // it is elsewhere
	}
	return nil, fmt.Errorf("unknown executor kind %q", a.Executor.Kind)
}

func buildModel(cfg *config.Config, a *config.Agent, m *telemetry.Metrics, log *slog.Logger) (executor.Executor, error) {
	o := a.Executor.OpenAI
	parameters := map[string]json.RawMessage{}
	for name, value := range o.Parameters {
		parameters[name] = json.RawMessage(value)
	}
	var tools []openai.ToolServer
	var observeTools web.Observer
	for i := range o.Tools {
		tools = append(tools, openai.ToolServer(o.Tools[i]))
		if o.Tools[i].URL != "" && observeTools == nil {
			observeTools = m.Upstream(a.Name, "tools")
		}
	}
	var called []openai.AgentTool
	for _, t := range o.Agents {
		if i := slices.IndexFunc(cfg.Agents, func(a config.Agent) bool { return a.Name == t.Name }); t.Description == "" && i >= 0 {
			t.Description = cfg.Agents[i].Card.Description
		}
		called = append(called, openai.AgentTool(t))
	}
	return openai.New(openai.Options{
		Responses: o.API == config.APIResponses,
		BaseURL:   o.BaseURL, Model: o.Model, APIKey: o.APIKey, Headers: o.Headers,
		System: o.System, Parameters: parameters, History: history(a), Whole: !o.Stream, Reasoning: o.Reasoning,
		Tools: tools, Agents: called, MaxToolCalls: o.MaxToolCalls, ToolTimeout: o.ToolTimeout,
		MaxEvent: int(a.Limits.MaxEvent), Observe: m.Upstream(a.Name, "openai"), ObserveTools: observeTools, Log: log,
	})
}

// Tells reports for each agent whether it wants to be told about canceled tasks. Whether an agent of kind go does, only its
// worker knows: that drops the notice if it does not.
func Tells(cfg *config.Config) func(agent string) bool {
	told := map[string]bool{}
	if len(cfg.Agents) == 0 { // a program that has no configuration; the worker of each agent knows
		return func(string) bool { return true }
	}
	for i := range cfg.Agents {
		e := &cfg.Agents[i].Executor
		told[cfg.Agents[i].Name] = e.Kind == config.ExecutorGo || e.Kind == config.ExecutorA2A ||
			e.Kind == config.ExecutorHTTP && e.HTTP.CancelURL != ""
	}
	return func(agent string) bool { return told[agent] }
}

// modes returns the media types of an agent and of all its skills.
func modes(all []string, skills []config.Skill, of func(*config.Skill) []string) []string {
	if len(all) == 0 { // any
		return nil
	}
	for i := range skills {
		all = append(all[:len(all):len(all)], of(&skills[i])...)
	}
	return all
}

// history returns what of the conversation an agent gets with a run.
func history(a *config.Agent) wire.History {
	h := wire.History{Of: executor.OfTask, Bounds: executor.Bounds{Count: a.Limits.HistoryEntries, Bytes: int64(a.Limits.HistoryBytes)}}
	if a.History == config.HistoryContext {
		h.Of = executor.OfContext
	}
	h.None = a.History == config.HistoryNone
	return h
}

// ownExtensions are our extensions of A2A, for every agent. docs/extensions describes them for authors of other servers
// and clients.
var ownExtensions = []config.Extension{
	{
		URI:         dispatch.ResumeURI,
		Description: "Last-Event-ID continues the stream of a task after that event",
	},
	{
		URI:         dispatch.IdempotencyURI,
		Description: "Idempotency-Key makes a repeated send find the task of the first one",
	},
}

func ownURIs() (uris []string) {
	for _, e := range ownExtensions {
		uris = append(uris, e.URI)
	}
	return uris
}

// extensions returns the extensions of an agent: ours, unless its card overrides them, and its own.
func extensions(c *config.Card) []config.Extension {
	var all []config.Extension
	for _, own := range ownExtensions {
		if !slices.ContainsFunc(c.Extensions, func(e config.Extension) bool { return e.URI == own.URI }) {
			all = append(all, own)
		}
	}
	return append(all, c.Extensions...)
}

// extensionParams returns the parameters of the extensions that have some, by URI.
func extensionParams(c *config.Card) map[string]json.RawMessage {
	params := map[string]json.RawMessage{}
	for _, e := range c.Extensions {
		if e.Params != nil {
			params[e.URI] = json.RawMessage(e.Params)
		}
	}
	return params
}

// renderings has the renderings of agent-card.json.
var renderings = map[config.CardUnversioned]card.Rendering{
	config.CardSuperset: card.RenderSuperset, config.CardStrict10: card.RenderStrict, config.CardLegacy: card.RenderLegacy,
}

// ambiguous has the shapes of answers to requests that do not show their version.
var ambiguous = map[config.AmbiguousResult]dispatch.Ambiguous{
	config.ResultOrigin: dispatch.AsOrigin, config.ResultUnion: dispatch.AsUnion, config.Result03: dispatch.AsNewest,
}

func describe(a *config.Agent, of *config.Card, schemes []config.AuthScheme) card.Card {
	c := card.Card{
		Name: of.Name, Description: of.Description, Version: of.Version,
		DocumentationURL: of.DocumentationURL, IconURL: of.IconURL,
		InputModes: of.DefaultInputModes, OutputModes: of.DefaultOutputModes,
		Capabilities: card.Capabilities{Streaming: of.Streaming, ExtendedCard: of.Extended},
		Scope:        a.Auth.Scope,
	}
	for _, name := range a.Auth.Schemes {
		for i := range schemes {
			if schemes[i].Name == name {
				c.Security = append(c.Security, security(&schemes[i]))
			}
		}
	}
	if p := of.Provider; p.Organization != "" {
		c.Provider = &card.Provider{Organization: p.Organization, URL: p.URL}
	}
	for _, e := range extensions(of) {
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, card.Extension{
			URI: e.URI, Description: e.Description, Required: e.Required, Params: json.RawMessage(e.Params),
		})
	}
	for _, s := range of.Skills {
		c.Skills = append(c.Skills, card.Skill(s))
	}
	if c.Restricted() {
		c.Capabilities.ExtendedCard = true // callers with the scopes see the rest there
	}
	return c
}
