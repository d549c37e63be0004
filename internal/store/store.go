package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"github.com/holdfast-a2a/holdfast/internal/seal"
	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Listener is told what has been committed. Calls come from the writers and must
// not block.
type Listener interface {
	// Committed brings new events, those of one task in order.
	Committed(evs []*task.Event)
	// Advanced says that a log has grown to seq by events that are not at hand.
	Advanced(id task.ID, seq task.Seq)
	// Ready says that an agent's queue has a row to claim.
	Ready(agent string)
	// CancelWanted says that a running task was asked to end.
	CancelWanted(id task.ID)
	// KeyRevoked says that an API key is no longer valid.
	KeyRevoked(id string)
}

// Observer takes the store's measurements. Every field is optional.
type Observer struct {
	Flushed func(kind string, items int, took time.Duration)
	Fenced  func(writes int)
	Retried func(kind string)
	Event   func(kind task.EventKind)
	Limited func(agent, limit string) // a create was refused
}

// Options says how to reach the database. The zero value of a number means its default.
type Options struct {
	URL      string
	APIConns int // for reads and single writes; default 8
	Writers  int // writers of appends, and of creates; default 1
	Batch    int // requests that one flush takes at most; default 500
	// Pooled says that URL leads to a transaction pooler. Such a one refuses session settings,
	// which must then be set for the database role (docs/deployment.md).
	Pooled   bool
	Listener Listener
	Observer Observer
	// PushesDue is told after a commit that gave webhooks something to deliver. It must not block.
	PushesDue func()
	// SecretKeys seal the secrets of webhooks: the first seals, all open (package seal). Without one, a key of the database's.
	SecretKeys [][]byte
	// RowSecurity has callers' statements run under row-level security, if the database lets us: WithoutRowSecurity says.
	RowSecurity bool
	// By is who acts where it is not a caller, for the audit log: an operator, or nobody in particular.
	By Caller
	// WithoutAudit writes none.
	WithoutAudit bool
	// PushPerHost is how many deliveries to one host a claim takes at most; default 8.
	PushPerHost int
	// PushPerCaller is how many a claim takes at most of webhooks of one caller; default 32.
	PushPerCaller int
	Log           *slog.Logger
}

// Store is the database. Its methods may be called from many goroutines.
type Store struct {
	View           // the server's own
	api      *pool // requests: reads, messages, cancels
	hot      *pool // writers, claims, leases: never starved by requests
	q        *dbsqlc.Queries
	log      *slog.Logger
	listener Listener
	observe  Observer

	appends []*batcher[*Append]
	creates []*batcher[*create]
	records *batcher[*record]

	withoutAudit       bool
	rowSecurity        bool
	withoutRowSecurity string

	pushesDue                  func()
	pushPerHost, pushPerCaller int
	secretKeys                 [][]byte
	ringMu                     sync.Mutex
	ring                       *seal.Keys // made when it is first needed

	laneMu    sync.Mutex
	lane      dbsqlc.PushLanesParams // where the next look begins
	noneAside time.Time              // when there was nothing in any lane

	cancel  context.CancelFunc
	stop    chan struct{}
	writers sync.WaitGroup
}

// Open connects and starts the writers. The schema must be there (Migrate).
func Open(ctx context.Context, o Options) (*Store, error) {
	o.APIConns = cmp.Or(o.APIConns, 8)
	o.Writers = cmp.Or(o.Writers, 1)
	// A flush bounds how long the rest of the queue waits for it.
	o.Batch = cmp.Or(o.Batch, 500)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	api, err := openPool(ctx, o, o.APIConns, 5*time.Second)
	if err != nil {
		return nil, err
	}
	hot, err := openPool(ctx, o, 2*o.Writers+4, 30*time.Second)
	if err != nil {
		api.Close()
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		api: api, hot: hot, q: dbsqlc.New(), log: o.Log, listener: o.Listener, observe: o.Observer,
		pushesDue: o.PushesDue, lane: beforeLanes, pushPerHost: cmp.Or(o.PushPerHost, 8), pushPerCaller: cmp.Or(o.PushPerCaller, 32), secretKeys: o.SecretKeys,
		withoutAudit: o.WithoutAudit, cancel: cancel, stop: make(chan struct{}),
	}
	s.View = View{s: s, db: api, by: o.By}
	if o.RowSecurity {
		if s.withoutRowSecurity, err = CheckRowSecurity(ctx, api.Pool); err != nil {
			s.cancel()
			api.Close()
			hot.Close()
			return nil, fmt.Errorf("row-level security: %w", err)
		}
		s.rowSecurity = s.withoutRowSecurity == ""
	}
	s.records = newBatcher(o.Batch, s.flushRecords)
	s.writers.Go(func() { s.records.run(run, s.stop) })
	for range o.Writers {
		a := newBatcher(o.Batch, s.flushAppends)
		c := newBatcher(o.Batch, s.flushCreates)
		s.appends, s.creates = append(s.appends, a), append(s.creates, c)
		s.writers.Go(func() { a.run(run, s.stop) })
		s.writers.Go(func() { c.run(run, s.stop) })
	}
	return s, nil
}

func openPool(ctx context.Context, o Options, conns int, statementTimeout time.Duration) (*pool, error) {
	cfg, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	cfg.MaxConns = int32(conns)
	cfg.MinIdleConns = 1
	cfg.HealthCheckPeriod = 15 * time.Second
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	// The driver would write each UUID as text and read that again.
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		pgxuuid.Register(c.TypeMap())
		return nil
	}
	p := cfg.ConnConfig.RuntimeParams
	if p["application_name"] == "" {
		p["application_name"] = "holdfast"
	}
	if o.Pooled {
		// Prepared statements belong to a session that the next statement may not get.
		if !strings.Contains(o.URL, "default_query_exec_mode") {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return newPool(ctx, cfg, statementTimeout)
	}
	for name, value := range map[string]string{
		"timezone":                            "UTC",
		"statement_timeout":                   strconv.FormatInt(statementTimeout.Milliseconds(), 10),
		"lock_timeout":                        "4s",
		"idle_in_transaction_session_timeout": "10s",
		// Every hot statement is an index plan by design. A partition that was analyzed while it
		// was empty would otherwise get a sequential scan, and the cached plan would keep it.
		"enable_seqscan": "off",
		"jit":            "off",
		// Planning the append anew each time costs several times its execution, and the planner
		// would: it cannot know how short the arrays are.
		"plan_cache_mode": "force_generic_plan",
	} {
		if _, set := p[name]; !set {
			p[name] = value
		}
	}
	return newPool(ctx, cfg, statementTimeout)
}

// Close writes what is queued, for as long as ctx allows, and disconnects.
func (s *Store) Close(ctx context.Context) {
	close(s.stop)
	done := make(chan struct{})
	go func() { s.writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.log.Warn("stopping with writes still queued")
	}
	s.cancel()
	<-done
	s.api.Close()
	s.hot.Close()
}

// WithoutRowSecurity says why callers' statements run without the row-level security that was asked for; "" when they run
// under it, or nobody asked.
func (s *Store) WithoutRowSecurity() string { return s.withoutRowSecurity }

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return translate("ping", s.api.Ping(ctx))
}

// Pools gives the connection pools for metrics, by name.
func (s *Store) Pools() map[string]*pgxpool.Pool {
	return map[string]*pgxpool.Pool{"api": s.api.Pool, "hot": s.hot.Pool}
}

// shard sends all writes of one task through one writer. The tail of a UUIDv7 is random.
func (s *Store) shard(id task.ID) int {
	return int(binary.BigEndian.Uint32(id[12:]) % uint32(len(s.appends)))
}

func (s *Store) flushed(kind string, items int, since time.Time) {
	if s.observe.Flushed != nil {
		s.observe.Flushed(kind, items, time.Since(since))
	}
}

func (s *Store) retried(kind string, err error, try int) {
	if s.observe.Retried != nil {
		s.observe.Retried(kind)
	}
	if try == 0 {
		s.log.Warn("write is repeated", "kind", kind, "error", err)
	}
}

// NewID makes the id of a task: a UUIDv7, whose leading time decides the partition.
func NewID() task.ID { return task.ID(uuid.Must(uuid.NewV7())) }
