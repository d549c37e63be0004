package config

import (
	"time"

	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Default returns the configuration without any settings, before the demo agent is added. The demo agent is added only
// when the file has no agents.
func Default() *Config {
	return &Config{
		Listen:      "127.0.0.1:8080",
		GRPCListen:  "127.0.0.1:8081",
		AdminListen: "127.0.0.1:9090",
		DataDir:     DefaultDataDir,
		Migrate:     MigrateAuto,
		Roles:       []Role{RoleAPI, RoleWorker, RolePush},
		Log:         Log{Level: "info", Format: LogAuto, Requests: RequestsWrites},
		Limits: Limits{
			MaxBody:        16 * MiB,
			MaxDepth:       32,
			MaxBlock:       25 * time.Second, // many clients give up after 30 s
			MaxStreams:     20000,
			RequestTimeout: time.Minute,
			IdleTimeout:    2 * time.Minute,

			MaxConnections:        50_000,
			ConnectionsPerAddress: 1_000,
			FailedAuthentications: 50,
		},
		Proxies: Proxies{ClientAddress: web.XForwardedFor},
		Protocol: Protocol{
			BlockingDefault: BlockingWait, VersionHeader: VersionLenient, StatusTable: Statuses101, CardUnversioned: CardSuperset,
			AmbiguousResult: ResultOrigin,
		},
		Worker: Worker{
			LeaseTTL:  10 * time.Second,
			StopGrace: 20 * time.Second,
		},
		Store: Store{PoolSize: 10, WriterConns: 1},
		Auth:  Auth{Visibility: VisibleToOwner, RowSecurity: RowSecurityPrefer},
		Admin: Admin{
			Scope: "holdfast:operator", SessionLifetime: 8 * time.Hour, Login: AdminLogin{Scopes: []string{"openid", "profile"}, Claims: ClaimsOfAccessToken},
		},
		Retention: Retention{
			Tasks: Forever, Artifacts: Forever, ExpireParkedAfter: Forever, Audit: Forever,
			// A client that was down over a weekend may still retry a request.
			IdempotencyKeys:  Keep(72 * time.Hour),
			DeliveryAttempts: Keep(7 * 24 * time.Hour),
		},
		Signing: Signing{Cards: true},
		Push: Push{
			Enabled:       true,
			CoalesceAfter: 32,
			MaxBody:       512 * KiB,
			Timeout:       15 * time.Second,
			Concurrency:   64,
			RetryFirst:    time.Second,
			RetryMost:     time.Hour,
			GiveUpAfter:   24 * time.Hour,
		},
	}
}

// drainDelay suits a balancer that checks readiness each second. Nothing balances a server that only its machine reaches.
const drainDelay = 3 * time.Second

// setDefaults fills the settings that do not depend on other keys. The decoder calls it for every agent before it reads
// the agent's keys.
func (a *Agent) setDefaults() {
	*a = Agent{
		OnBusy: BusyEnqueue, History: HistoryTask,
		Card: DefaultCard(),
		Executor: Executor{
			Worker: WorkerExecutor{Lease: 30 * time.Second},
			OpenAI: OpenAIExecutor{API: APIChat, Stream: true, MaxToolCalls: 50, ToolTimeout: time.Minute},
			A2A:    A2AExecutor{Version: "auto", Binding: "auto", Stream: true},
		},
		Limits: AgentLimits{
			RunTimeout:     time.Hour,
			MaxAttempts:    3,
			UnreachableFor: time.Hour,
			Backoff:        time.Second,
			CancelGrace:    10 * time.Second,
			MaxEvent:       16 * MiB,
			HistoryEntries: 100, HistoryBytes: 1 * MiB,
			MaxState: 256 * KiB,
			Calls:    100,
		},
	}
}

// DefaultCard is the card of an agent whose configuration has none.
func DefaultCard() Card {
	return Card{
		Version:   "1.0.0",
		Streaming: true,
	}
}

// defaultConcurrency is how many runs of an agent one replica runs at once. A demo run costs a goroutine, an http run a
// connection, a command run a process.
var defaultConcurrency = map[ExecutorKind]int{
	ExecutorDemo:    512,
	ExecutorHTTP:    256,
	ExecutorCommand: 16,
	ExecutorGo:      256,
	ExecutorOpenAI:  256,
	ExecutorA2A:     256,
	ExecutorWorker:  256, // only for tasks that have waited too long: workers say what they can run
}

// complete fills the settings that depend on other keys.
func (a *Agent) complete(concurrencySet, historySet bool) {
	if !historySet && a.Executor.Kind == ExecutorOpenAI {
		a.History = HistoryContext // people expect a chat to go on when its last task has ended
	}
	if !concurrencySet {
		a.Limits.Concurrency = defaultConcurrency[a.Executor.Kind]
	}
	if a.Executor.Kind != ExecutorA2A { // which has a card of its own
		a.CompleteCard()
	}
}

// CompleteCard fills the members of the card that clients need.
func (a *Agent) CompleteCard() {
	if a.Card.Name == "" {
		a.Card.Name = a.Name
	}
	if a.Card.Description == "" {
		a.Card.Description = "The agent " + a.Name + "."
	}
	if len(a.Card.Skills) == 0 {
		// Clients of every version expect a skill, so an agent without skills becomes its own skill.
		a.Card.Skills = []Skill{{ID: a.Name, Name: a.Card.Name, Description: a.Card.Description}}
	}
	for i := range a.Card.Skills {
		s := &a.Card.Skills[i]
		if s.Name == "" {
			s.Name = s.ID
		}
		if s.Description == "" {
			s.Description = s.Name
		}
		if len(s.Tags) == 0 {
			s.Tags = []string{s.ID}
		}
	}
}

// NewAgent returns an agent with the default settings. The caller sets its executor.
func NewAgent(name string) *Agent {
	a := new(Agent)
	a.setDefaults()
	a.Name = name
	return a
}

// goAgent is the agent when the file has no agents and the program brings one.
func goAgent(name string) Agent {
	var a Agent
	a.setDefaults()
	a.Name = name
	a.Executor.Kind = ExecutorGo
	return a
}

// demoAgent is the agent when the file has no agents.
func demoAgent() Agent {
	var a Agent
	a.setDefaults()
	a.Name = "demo"
	a.Default = true
	a.DirectReplies = true
	a.Executor.Kind = ExecutorDemo
	a.Card = Card{
		Name: "Holdfast demo",
		Description: "Shows every feature of A2A without a model: the first text part of a message is a small script, " +
			"such as echo:hello, chunks=20 size=64 delay=100ms, or ask:which city?",
		Version:   "1.0.0",
		Provider:  Provider{Organization: "Holdfast", URL: "https://github.com/holdfast-a2a/holdfast"},
		Streaming: true,
		Skills: []Skill{
			{
				ID: "echo", Name: "Echo", Description: "Answers with an artifact that holds what was sent.",
				Tags: []string{"demo", "text"}, Examples: []string{"echo:hello", "file", "data"},
			},
			{
				ID: "stream", Name: "Stream", Description: "Streams an artifact chunk by chunk, to watch streams and to resume them.",
				Tags: []string{"demo", "streaming"}, Examples: []string{"chunks=20 size=64 delay=100ms", "sleep=2s", "hold"},
			},
			{
				ID: "converse", Name: "Converse", Description: "Asks back and waits for the next message, or for authentication.",
				Tags: []string{"demo", "multi-turn"}, Examples: []string{"ask:which city?", "auth", "message:hi"},
			},
			{
				ID: "end", Name: "End badly", Description: "Fails, rejects or crashes, to see how that looks.",
				Tags: []string{"demo", "errors"}, Examples: []string{"fail:no luck", "reject:not today", "crash"},
			},
		},
	}
	return a
}
