// Package config turns a YAML file, the environment and command line flags into one validated Config. It is strict:
// unknown keys, wrong types and values out of range are mistakes. It reports all mistakes at once, with their
// positions.
//
// docs/configuration.md lists every key; a test compares it with the structs here.
package config

import (
	"cmp"
	"encoding/base64"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// Config has every setting of the operator. The tags of a field say all of a key: yaml (its name), env (its variable), default, range
// and one (see check), and secret. A Config that Load returned is complete: defaults are filled in and all
// values are checked.
type Config struct {
	Listen string `yaml:"listen" env:"HOLDFAST_LISTEN" default:"127.0.0.1:8080"`
	// GRPCListen is GRPCOff to turn gRPC off.
	GRPCListen        string `yaml:"grpc_listen" env:"HOLDFAST_GRPC_LISTEN" default:"127.0.0.1:8081"`
	AdminListen       string `yaml:"admin_listen" env:"HOLDFAST_ADMIN_LISTEN" default:"127.0.0.1:9090"`
	PublicURL         string `yaml:"public_url" env:"HOLDFAST_PUBLIC_URL"`
	PublicGRPCAddress string `yaml:"public_grpc_address" env:"HOLDFAST_PUBLIC_GRPC_ADDRESS"`
	DatabaseURL       string `yaml:"database_url" env:"HOLDFAST_DATABASE_URL" secret:"text"`
	ListenDatabaseURL string `yaml:"listen_database_url" env:"HOLDFAST_LISTEN_DATABASE_URL" secret:"text"`
	// DatabasePassword is read for each new connection. The URLs of a loaded configuration have it: see package pgurl.
	DatabasePassword *secrets.Source `yaml:"database_password" env:"HOLDFAST_DATABASE_PASSWORD"`
	DataDir          string          `yaml:"data_dir" env:"HOLDFAST_DATA_DIR" default:"./.holdfast"`
	// Migrate says who migrates an external database.
	Migrate Migrate `yaml:"migrate" env:"HOLDFAST_MIGRATE" default:"auto" one:"auto,wait,off"`
	Roles   []Role  `yaml:"roles" env:"HOLDFAST_ROLES" default:"api,worker,push"`
	// DrainDelay is the time between the end of readiness and the end of the public ports.
	DrainDelay time.Duration `yaml:"drain_delay" env:"HOLDFAST_DRAIN_DELAY" range:"0s,10m"`

	Log       Log       `yaml:"log"`
	Limits    Limits    `yaml:"limits"`
	Proxies   Proxies   `yaml:"proxies"`
	CORS      CORS      `yaml:"cors"`
	Protocol  Protocol  `yaml:"protocol"`
	Worker    Worker    `yaml:"worker"`
	RunAPI    RunAPI    `yaml:"run_api"`
	Store     Store     `yaml:"store"`
	Signing   Signing   `yaml:"signing"`
	Retention Retention `yaml:"retention"`
	Push      Push      `yaml:"push"`
	Auth      Auth      `yaml:"auth"`
	Admin     Admin     `yaml:"admin"`
	TLS       TLS       `yaml:"tls"`
	Agents    []Agent   `yaml:"agents"`
}

// DefaultDataDir has the embedded database of the server in the current directory.
const DefaultDataDir = "./.holdfast"

// Migrate says what a starting server does about the schema of its database.
type Migrate string

// The choices.
const (
	MigrateAuto Migrate = "auto" // migrate it, if the database role may
	MigrateWait Migrate = "wait" // wait until another process has migrated it
	MigrateOff  Migrate = "off"  // do not start on a schema that needs a migration
)

// Role is a part of the work that a replica may do.
type Role string

// The roles.
const (
	RoleAPI    Role = "api"    // serves clients
	RoleWorker Role = "worker" // runs agents
	RolePush   Role = "push"   // delivers webhooks
)

// Log says what is logged and how.
type Log struct {
	Level  string    `yaml:"level" env:"HOLDFAST_LOG_LEVEL" default:"info" one:"debug,info,warn,error"`
	Format LogFormat `yaml:"format" env:"HOLDFAST_LOG_FORMAT" default:"auto" one:"auto,json,text"`
	// Requests says which requests have a line.
	Requests LogRequests `yaml:"requests" env:"HOLDFAST_LOG_REQUESTS" default:"writes" one:"none,writes,all"`
}

// LogRequests says which requests have a log line.
type LogRequests string

// The choices.
const (
	RequestsNone   LogRequests = "none"
	RequestsWrites LogRequests = "writes" // those that callers were admitted to and that change something
	RequestsAll    LogRequests = "all"
)

// LogFormat is the shape of log lines on stderr.
type LogFormat string

// The log formats.
const (
	LogAuto LogFormat = "auto" // text on a terminal, else JSON
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// Limits bound what clients may ask of one replica.
type Limits struct {
	// Memory is the memory that the process may use; 0: as the control group or the machine has.
	Memory         Size          `yaml:"memory" range:"0|64MiB,1024GiB"`
	MaxBody        Size          `yaml:"max_body" default:"16MiB" range:"1KiB,1GiB"`
	MaxDepth       int           `yaml:"max_depth" default:"32" range:"16,1000"`
	MaxBlock       time.Duration `yaml:"max_block" default:"25s" range:"1s,1h"` // many clients give up after 30 s
	MaxStreams     int           `yaml:"max_streams" default:"20000" range:"1,1000000"`
	RequestTimeout time.Duration `yaml:"request_timeout" default:"1m" range:"1s,1h"` // for a body to arrive; see HeaderTimeout
	IdleTimeout    time.Duration `yaml:"idle_timeout" default:"2m" range:"1s,1h"`
	PerPrincipal   PerPrincipal  `yaml:"per_principal"`
	// MaxConnections bounds the open connections of the public ports, ConnectionsPerAddress those from one address (0:
	// no limit).
	MaxConnections        int `yaml:"max_connections" default:"50000" range:"1,1000000"`
	ConnectionsPerAddress int `yaml:"connections_per_address" env:"HOLDFAST_CONNECTIONS_PER_ADDRESS" default:"1000" range:"0,1000000"`
	// FailedAuthentications is the limit per second from one address; 0: no limit.
	FailedAuthentications int `yaml:"failed_authentications" default:"50" range:"0,1000000"`
}

// PerPrincipal bounds what each caller may ask. 0 means no limit.
type PerPrincipal struct {
	Rate      int `yaml:"rate" range:"0,1000000"` // requests per second, on one replica
	Streams   int `yaml:"streams" range:"0,1000000"`
	LiveTasks int `yaml:"live_tasks" range:"0,100000"` // per agent, over all replicas; counted row by row when a task is created
}

// HeaderTimeout is how long the headers of a request may take to arrive: 10 s by default. They are small, and a client needs
// no credential to hold a connection without them.
func (l *Limits) HeaderTimeout() time.Duration { return l.RequestTimeout / 6 }

// Proxies says which proxies in front of the server are trusted about the addresses of clients.
type Proxies struct {
	Trusted       []string        `yaml:"trusted" env:"HOLDFAST_PROXIES_TRUSTED"` // networks
	ClientAddress web.ProxySource `yaml:"client_address" env:"HOLDFAST_PROXIES_CLIENT_ADDRESS" default:"x-forwarded-for" one:"x-forwarded-for,forwarded,proxy-protocol"`
}

// TrustedProxies returns the trusted proxies; nil: none.
func (c *Config) TrustedProxies() *web.TrustedProxies {
	var networks []netip.Prefix
	for _, n := range c.Proxies.Trusted {
		networks = append(networks, netip.MustParsePrefix(n)) // validated
	}
	return web.NewTrustedProxies(networks, c.Proxies.ClientAddress)
}

// CORS is for web pages of other origins that call the server from a browser.
type CORS struct {
	AllowedOrigins []string `yaml:"allowed_origins" env:"HOLDFAST_CORS_ALLOWED_ORIGINS"` // empty: no other origin
	AllowedHeaders []string `yaml:"allowed_headers"`                                     // in addition to those of A2A
}

// Protocol holds the choices that the A2A documents leave open.
type Protocol struct {
	// LegacyClientTaskIDs lets an unknown message.taskId of 0.2 and 0.3 become the id of
	// a new task, as early clients expect.
	LegacyClientTaskIDs bool `yaml:"legacy_client_task_ids"`
	// V01ReopenTerminal lets a message of 0.1 to an ended task begin a new task under the same id.
	V01ReopenTerminal bool `yaml:"v01_reopen_terminal"`
	// V01EventNames gives server-sent events of 0.1 the names that trpc-a2a-go 0.0.x expects.
	V01EventNames   bool            `yaml:"v01_event_names"`
	BlockingDefault BlockingDefault `yaml:"blocking_default" default:"wait" one:"wait,return"`
	VersionHeader   VersionHeader   `yaml:"version_header" default:"lenient" one:"lenient,strict"`
	StatusTable     StatusTable     `yaml:"status_table" default:"1.0.1" one:"1.0.1,1.0.0"`
	CardUnversioned CardUnversioned `yaml:"card_unversioned" default:"superset" one:"superset,strict10,legacy"`
	AmbiguousResult AmbiguousResult `yaml:"ambiguous_result" default:"origin" one:"origin,union,v03"`
}

// BlockingDefault is what message/send does when the request sets no mode.
type BlockingDefault string

// The values of BlockingDefault.
const (
	BlockingWait   BlockingDefault = "wait"
	BlockingReturn BlockingDefault = "return"
)

// VersionHeader says how to handle an A2A-Version that does not have the method.
type VersionHeader string

// The values of VersionHeader.
const (
	VersionLenient VersionHeader = "lenient" // the name of the method decides
	VersionStrict  VersionHeader = "strict"  // the request is refused
)

// StatusTable is the edition of A2A 1.0 that defines the HTTP and gRPC statuses of errors.
type StatusTable string

// The values of StatusTable.
const (
	Statuses101 StatusTable = "1.0.1"
	Statuses100 StatusTable = "1.0.0"
)

// CardUnversioned is the rendering of agent-card.json for clients that name no version.
type CardUnversioned string

// The values of CardUnversioned.
const (
	CardSuperset CardUnversioned = "superset"
	CardStrict10 CardUnversioned = "strict10"
	CardLegacy   CardUnversioned = "legacy"
)

// AmbiguousResult is the shape of answers to requests that look the same in 0.1 and 0.3.
type AmbiguousResult string

// The values of AmbiguousResult.
const (
	ResultOrigin AmbiguousResult = "origin" // of the version that created the task
	ResultUnion  AmbiguousResult = "union"  // of both versions, for a task of 0.1
	Result03     AmbiguousResult = "v03"
)

// Worker tunes the worker pool of a replica.
type Worker struct {
	LeaseTTL  time.Duration `yaml:"lease_ttl" default:"10s" range:"3s,10m"`
	StopGrace time.Duration `yaml:"stop_grace" default:"20s" range:"0s,1h"`
}

// RunAPI is where agents act for their runs from elsewhere.
type RunAPI struct {
	URL string `yaml:"url" env:"HOLDFAST_RUN_API_URL"`
}

// Store tunes the database connections of a replica.
type Store struct {
	PoolSize    int `yaml:"pool_size" default:"10" range:"2,1000"`
	WriterConns int `yaml:"writer_conns" default:"1" range:"1,64"`
}

// Signing configures the keys that replicas share.
type Signing struct {
	Cards bool `yaml:"cards" default:"true"`
}

// Push configures webhooks: who may set which, and how they are delivered.
type Push struct {
	Enabled bool `yaml:"enabled" default:"true"`

	HTTPSOnly       bool     `yaml:"https_only"`
	AllowPrivate    bool     `yaml:"allow_private"`
	AllowedNetworks []string `yaml:"allowed_networks"` // in CIDR notation
	DeniedNetworks  []string `yaml:"denied_networks"`  // even if allowed; in CIDR notation
	Challenge       bool     `yaml:"validation_challenge"`

	Artifacts     bool `yaml:"artifacts"`
	CoalesceAfter int  `yaml:"coalesce_after" default:"32" range:"0,1000"` // 0: never
	MaxBody       Size `yaml:"max_body" default:"512KiB" range:"16KiB,1GiB"`

	Timeout     time.Duration `yaml:"timeout" default:"15s" range:"100ms,2m"`
	Concurrency int           `yaml:"concurrency" default:"64" range:"1,10000"`

	RetryFirst  time.Duration `yaml:"retry_first" default:"1s" range:"10ms,1h"`
	RetryMost   time.Duration `yaml:"retry_most" default:"1h" range:"10ms,24h"`
	GiveUpAfter time.Duration `yaml:"give_up_after" default:"24h" range:"0s,8760h"` // 0: never

	WebhookSecrets []string `yaml:"webhook_secrets" env:"HOLDFAST_WEBHOOK_SECRETS" secret:"list"`
	SecretKeys     []string `yaml:"secret_keys" env:"HOLDFAST_SECRET_KEYS" secret:"list"`
}

// SealingKeys returns the decoded SecretKeys. The configuration must be valid.
func (p *Push) SealingKeys() [][]byte {
	keys := make([][]byte, len(p.SecretKeys))
	for i, text := range p.SecretKeys {
		keys[i], _ = base64.StdEncoding.DecodeString(text)
	}
	return keys
}

// Retention says how long data is kept. Its values for tasks are the defaults of the agents.
type Retention struct {
	Tasks             Keep   `yaml:"tasks" default:"forever"`               // after the task has ended
	Artifacts         Keep   `yaml:"artifacts" default:"forever"`           // after the task has ended
	ExpireParkedAfter Keep   `yaml:"expire_parked_after" default:"forever"` // for tasks that wait for a client
	IdempotencyKeys   Keep   `yaml:"idempotency_keys" default:"72h"`        // a client that was down over a weekend may still retry
	DeliveryAttempts  Keep   `yaml:"delivery_attempts" default:"168h"`
	Audit             Keep   `yaml:"audit" default:"forever"`
	ExportDirectory   string `yaml:"export_directory"`
}

// AgentRetention overrides how long the data of an agent's tasks is kept.
type AgentRetention struct {
	Tasks             Keep `yaml:"tasks"`
	Artifacts         Keep `yaml:"artifacts"`
	ExpireParkedAfter Keep `yaml:"expire_parked_after"`
}

// Agent is one agent: the content of its card, its executor, and its limits.
type Agent struct {
	Name          string  `yaml:"name"`
	Default       bool    `yaml:"default"`
	OnBusy        OnBusy  `yaml:"on_busy" default:"enqueue" one:"enqueue,reject"`
	History       History `yaml:"history" default:"task" one:"task,context,none"`
	DirectReplies bool    `yaml:"direct_replies"`
	// RecursiveCalls lets the agent call itself and the agents that have called it.
	RecursiveCalls bool `yaml:"recursive_calls"`
	// ResumeByGet lets a GET of a resume URL resume a task, as the callbacks of OAuth do.
	ResumeByGet bool `yaml:"resume_by_get"`
	// DedupeMessageID deduplicates messages: one with the same id and content counts as a repetition.
	DedupeMessageID bool        `yaml:"dedupe_message_id"`
	Card            Card        `yaml:"card"`
	Executor        Executor    `yaml:"executor"`
	Limits          AgentLimits `yaml:"limits"`
	Auth            AgentAuth   `yaml:"auth"`
	// Retention overrides the default for tasks of this agent.
	Retention AgentRetention `yaml:"retention"`
}

// History says what of the conversation an http or command agent or a model gets with a run.
type History string

// The values of History.
const (
	HistoryTask    History = "task"
	HistoryContext History = "context" // all tasks of the caller with this agent in the context
	HistoryNone    History = "none"
)

// OnBusy is what happens to a message for a task that has a live run.
type OnBusy string

// The values of OnBusy.
const (
	BusyEnqueue OnBusy = "enqueue" // it waits for the next run
	BusyReject  OnBusy = "reject"  // the client gets an error
)

// Card is the description of the agent, in every A2A version.
type Card struct {
	Name               string   `yaml:"name"`
	Description        string   `yaml:"description"`
	Version            string   `yaml:"version" default:"1.0.0"`
	Provider           Provider `yaml:"provider"`
	DocumentationURL   string   `yaml:"documentation_url"`
	IconURL            string   `yaml:"icon_url"`
	DefaultInputModes  []string `yaml:"default_input_modes"`
	DefaultOutputModes []string `yaml:"default_output_modes"`
	Streaming          bool     `yaml:"streaming" default:"true"` // false: streams are refused
	Skills             []Skill  `yaml:"skills"`

	Extensions []Extension `yaml:"extensions"`

	// Extended declares an extended card even if the public card already has everything.
	Extended bool `yaml:"extended"`
}

// Provider is the organization that offers the agent; empty when the card names none.
type Provider struct {
	Organization string `yaml:"organization"`
	URL          string `yaml:"url"`
}

// Skill is one thing that the agent can do.
type Skill struct {
	ID          string   `yaml:"id"`
	Name        string   `yaml:"name"`
	Description string   `yaml:"description"`
	Tags        []string `yaml:"tags"`
	Examples    []string `yaml:"examples"`
	InputModes  []string `yaml:"input_modes"`
	OutputModes []string `yaml:"output_modes"`
	// Scope is the scope that a client needs to see the skill.
	Scope string `yaml:"scope"`
}

// Extension is an extension of the protocol that the agent understands.
type Extension struct {
	URI         string `yaml:"uri"`
	Description string `yaml:"description"`
	Required    bool   `yaml:"required"`
	Params      JSON   `yaml:"params"`
}

// Executor says what runs the agent. Only the section of its kind is used.
type Executor struct {
	Kind    ExecutorKind    `yaml:"kind" one:"demo,http,command,worker,a2a,openai,go"`
	HTTP    HTTPExecutor    `yaml:"http"`
	Command CommandExecutor `yaml:"command"`
	OpenAI  OpenAIExecutor  `yaml:"openai"`
	A2A     A2AExecutor     `yaml:"a2a"`
	Worker  WorkerExecutor  `yaml:"worker"`
}

// ExecutorKind names a built-in executor.
type ExecutorKind string

// The built-in executors.
const (
	ExecutorDemo    ExecutorKind = "demo"
	ExecutorHTTP    ExecutorKind = "http"
	ExecutorCommand ExecutorKind = "command"
	ExecutorGo      ExecutorKind = "go" // from the Go program that serves
	ExecutorOpenAI  ExecutorKind = "openai"
	ExecutorA2A     ExecutorKind = "a2a"
	ExecutorWorker  ExecutorKind = "worker" // processes that connect and claim runs
)

// WorkerExecutor is an agent whose runs connected workers claim.
type WorkerExecutor struct {
	Lease time.Duration `yaml:"lease" default:"30s" range:"3s,1h"` // of a run, unless the worker renews it
}

// HTTPExecutor is an agent behind an HTTP endpoint.
type HTTPExecutor struct {
	URL           string            `yaml:"url"`
	CancelURL     string            `yaml:"cancel_url"`
	Headers       map[string]string `yaml:"headers" secret:"headers"`
	HeaderTimeout time.Duration     `yaml:"header_timeout" range:"0s,24h"` // 0: only the run's timeout
}

// CommandExecutor is an agent that is a program, started once per run.
type CommandExecutor struct {
	Argv    []string          `yaml:"argv"`
	Dir     string            `yaml:"dir"`
	Env     map[string]string `yaml:"env" secret:"variables"`
	Inherit []string          `yaml:"inherit"`                  // names of the server's environment variables
	UID     int               `yaml:"uid" range:"0,2147483647"` // 0: the server's
	GID     int               `yaml:"gid" range:"0,2147483647"` // 0: the server's
}

// OpenAIExecutor is a model behind an API of OpenAI.
type OpenAIExecutor struct {
	API          ModelAPI          `yaml:"api" default:"chat-completions" one:"chat-completions,responses"`
	BaseURL      string            `yaml:"base_url"`
	Model        string            `yaml:"model"`
	APIKey       *secrets.Source   `yaml:"api_key"` // read for each call
	Headers      map[string]string `yaml:"headers" secret:"headers"`
	System       string            `yaml:"system"`
	Parameters   map[string]JSON   `yaml:"parameters"` // further members of requests, such as temperature
	Stream       bool              `yaml:"stream" default:"true"`
	Reasoning    bool              `yaml:"reasoning"` // show it as an artifact of its own
	Tools        []ToolServer      `yaml:"tools"`
	Agents       []AgentTool       `yaml:"agents"`
	MaxToolCalls int               `yaml:"max_tool_calls" default:"50" range:"1,10000"` // in one turn
	ToolTimeout  time.Duration     `yaml:"tool_timeout" default:"1m" range:"100ms,24h"`
}

// ModelAPI is the API of a model.
type ModelAPI string

// The APIs of models.
const (
	APIChat      ModelAPI = "chat-completions"
	APIResponses ModelAPI = "responses"
)

// ToolServer is an MCP server whose tools a model may call: a program or an address.
type ToolServer struct {
	Name    string            `yaml:"name"`
	Argv    []string          `yaml:"argv"`
	Dir     string            `yaml:"dir"`
	Env     map[string]string `yaml:"env" secret:"variables"`
	Inherit []string          `yaml:"inherit"`
	URL     string            `yaml:"url"`
	Headers map[string]string `yaml:"headers" secret:"headers"`
	Allow   []string          `yaml:"allow"`   // empty: all tools
	Approve []string          `yaml:"approve"` // by the client, before each call; * means all
}

// AgentTool is an agent of this server that a model may call.
type AgentTool struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"` // for the model; empty: that of the agent's card
	Approve     bool   `yaml:"approve"`     // by the client, before each call
	Relay       bool   `yaml:"relay"`       // the client sees the agent's progress
}

// A2AExecutor is an agent that is an A2A server itself.
type A2AExecutor struct {
	CardURL      string            `yaml:"card_url"`
	URL          string            `yaml:"url"`
	Version      string            `yaml:"version" default:"auto"`
	Binding      string            `yaml:"binding" default:"auto"`
	Stream       bool              `yaml:"stream" default:"true"`
	Headers      map[string]string `yaml:"headers" secret:"headers"`
	Auth         A2AAuth           `yaml:"auth"`
	Forward      A2AForward        `yaml:"forward"`
	Push         bool              `yaml:"push"`      // ask for notifications, which are sent to RunAPIURL
	CardKeys     string            `yaml:"card_keys"` // public keys that may sign the card: a JWK set or PEM
	CardKeysFile string            `yaml:"card_keys_file"`
}

// A2AForward says what of a client's requests goes to the agent besides its messages.
type A2AForward struct {
	Headers []string `yaml:"headers"` // by name
}

// A2AAuth is the credential for an A2A server.
type A2AAuth struct {
	Bearer   *secrets.Source `yaml:"bearer"` // both are read for each call
	Username string          `yaml:"username"`
	Password *secrets.Source `yaml:"password"`
}

// AgentLimits bound the runs of one agent on one replica, and its tasks on all replicas.
type AgentLimits struct {
	Concurrency       int           `yaml:"concurrency"`
	Queue             int           `yaml:"queue" range:"0,100000"`                   // waiting tasks; 0: no limit
	LiveTasks         int           `yaml:"live_tasks" range:"0,100000"`              // of each caller; 0: the limit for every agent
	MaxArtifacts      Size          `yaml:"max_artifacts" range:"0|1KiB,1024GiB"`     // of a task; 0: no limit
	RunTimeout        time.Duration `yaml:"run_timeout" default:"1h" range:"0s,720h"` // 0: none
	InactivityTimeout time.Duration `yaml:"inactivity_timeout" range:"0s,720h"`       // 0: none
	MaxAttempts       int           `yaml:"max_attempts" default:"3" range:"1,1000"`
	UnreachableFor    time.Duration `yaml:"unreachable_for" default:"1h" range:"1s,720h"` // how long tasks wait for an agent that is away
	Backoff           time.Duration `yaml:"backoff" default:"1s" range:"1ms,1h"`
	CancelGrace       time.Duration `yaml:"cancel_grace" default:"10s" range:"0s,1h"`
	MaxEvent          Size          `yaml:"max_event" default:"16MiB" range:"1KiB,1GiB"`
	HistoryEntries    int           `yaml:"history_entries" default:"100" range:"1,10000"` // messages and artifacts
	HistoryBytes      Size          `yaml:"history_bytes" default:"1MiB" range:"1KiB,64MiB"`
	MaxState          Size          `yaml:"max_state" default:"256KiB" range:"1KiB,16MiB"` // of a task or a context
	Calls             int           `yaml:"calls" default:"100" range:"1,1000"`            // of one event
}

// HasRole reports whether this replica takes the role.
func (c *Config) HasRole(r Role) bool {
	for _, have := range c.Roles {
		if have == r {
			return true
		}
	}
	return false
}

// Slots is how many runs of the agent one replica does at once; 0 if other processes do them.
func (a *Agent) Slots() int {
	if a.Executor.Kind == ExecutorWorker {
		return 0
	}
	return a.Limits.Concurrency
}

// DefaultAgent returns the agent at the root.
func (c *Config) DefaultAgent() *Agent {
	for i := range c.Agents {
		if c.Agents[i].Default {
			return &c.Agents[i]
		}
	}
	return nil
}

// BaseURL returns the URL where clients reach this server, without a trailing slash. That is PublicURL, or a URL made
// from the address that the listener was bound to. A wildcard address becomes the loopback address, because a card must
// name a host.
func (c *Config) BaseURL(bound string) string {
	if c.PublicURL != "" {
		return strings.TrimRight(c.PublicURL, "/")
	}
	if c.TLS.Enabled() {
		return "https://" + ReachableAddr(bound)
	}
	return "http://" + ReachableAddr(bound)
}

// KnowsRunAPI reports whether this process knows a URL at which agents reach a replica.
func (c *Config) KnowsRunAPI() bool {
	return c.HasRole(RoleAPI) || c.RunAPI.URL != "" || c.PublicURL != ""
}

// RunAPIURL returns the URL where agents reach this server or any other replica, without a trailing slash. base is the one
// for clients.
func (c *Config) RunAPIURL(base string) string {
	return strings.TrimRight(cmp.Or(c.RunAPI.URL, base), "/")
}

// GRPCOff is the grpc_listen of a server without gRPC.
const GRPCOff = "off"

// ServesGRPC reports whether the server offers gRPC.
func (c *Config) ServesGRPC() bool {
	return c.HasRole(RoleAPI) && c.GRPCListen != GRPCOff
}

// besideListen returns the default gRPC address: the port after that of listen.
func besideListen(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if n, perr := strconv.ParseUint(port, 10, 16); err == nil && perr == nil {
		if n > 0 {
			n++
		}
		return net.JoinHostPort(host, strconv.FormatUint(n, 10))
	}
	return GRPCOff // listen has a mistake, which is reported elsewhere
}

// ReachableAddr replaces the wildcard host of a listen address by the loopback address.
func ReachableAddr(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	ip := net.ParseIP(host)
	switch {
	case host == "" || (ip != nil && ip.IsUnspecified() && ip.To4() != nil):
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
