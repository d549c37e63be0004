package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-a2a/holdfast/internal/limit"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// Listener receives announcements of commits. The writers call its methods, which must not block.
type Listener interface {
	// Committed announces new events; those of one task are in order.
	Committed(evs []*task.Event)
	// Advanced says that a log has grown to seq by events that are not in memory.
	Advanced(id task.ID, seq task.Seq)
	// Ready says that an agent's queue has a row to claim.
	Ready(agent string)
	// CancelWanted says that a running task was asked to end.
	CancelWanted(id task.ID)
	// PushesDue says that webhooks have something to deliver.
	PushesDue()
	// CallsDue says that a task has called others, or that one with a lineage has ended or parked.
	CallsDue()
	// Gone says that tasks were deleted.
	Gone(ids []task.ID)
	// KeyRevoked says that an API key is no longer valid.
	KeyRevoked(id string)
}

// Observer receives the store's measurements. Every field is optional.
type Observer struct {
	Flushed func(kind string, items int, took time.Duration)
	Fenced  func(writes int)
	Retried func(kind string)
	Event   func(kind task.EventKind)
	Limited func(agent, limit string) // a limit refused a create
	// Canceled receives the time from the first cancel of a task to its end, by the database's clock. A task that the cancel itself
	// has ended is not told.
	Canceled func(agent string, took time.Duration)
	// Ended says that the log of a task was wanted, and whether it was kept in memory.
	Ended func(hit bool)
}

// Options configures a Store. The zero value of a number means its default.
type Options struct {
	URL      string
	APIConns int // for reads and single writes; default 8
	Writers  int // writers of appends, and of creates; default 1
	Batch    int // maximum requests per flush; default 500
	// Pooled says that URL leads to a transaction pooler. A transaction pooler refuses session
	// settings; set them for the database role instead (docs/database.md).
	Pooled   bool
	Listener Listener
	Observer Observer
	// SecretKeys are the keys for the secrets of webhooks: the first one seals, all of them open
	// (package seal). Without keys, the store uses a key from the database.
	SecretKeys [][]byte
	// RowSecurity runs callers' statements under row-level security if the database allows it. See
	// WithoutRowSecurity.
	RowSecurity bool
	// Tells reports whether an agent wants to be told about canceled tasks. Nil: none does.
	Tells  func(agent string) bool
	Widths Widths
	// Ended bounds the memory of ended tasks that are kept for further reads. Nil: none is kept.
	Ended  *limit.Budget
	Tracer pgx.QueryTracer // nil: no spans of statements
	Log    *slog.Logger

	patience patience
}

// patience bounds waits. Tests set it so long that no machine is too slow for them.
type patience struct {
	lock    time.Duration // of a statement for a lock; default lockTimeout
	turn    time.Duration // of a request for others' writes to its task; default turnPatience
	blocked time.Duration // of a write for the end of a foreign lock; default blockedFor
	create  time.Duration // of a create for the end of a foreign lock or for its outcome; default createPatience
}

// Store is the database. It is safe for concurrent use.
type Store struct {
	View           // the server's own
	api      *pool // requests: reads, messages, cancels
	hot      *pool // claims, the hub: never starved by requests
	write    *pool // writers; waits for a lock for blockedAfter only
	lease    *pool // the lease of this process: never starved by anything
	q        *dbsqlc.Queries
	log      *slog.Logger
	listener Listener
	observe  Observer

	appends []*batcher[*Append]
	creates []*batcher[*create]
	records *batcher[*record]
	flushes waits // of the writers
	health  health
	moves   failover

	unprepared atomic.Bool // the pooler loses prepared statements

	turns   turnstile
	retries chan struct{} // holds an element for each request that tries again what a lock has blocked
	clock   clock
	ended   *ended

	patience           patience
	windowTasks        int32 // see the constants of these names
	windowPushes       int32
	statTasks          int
	tells              func(agent string) bool
	rowSecurity        bool
	withoutRowSecurity string

	widths     Widths
	secretKeys [][]byte
	ringMu     sync.Mutex
	ring       *secrets.Keys // created on first use
	lanes      lanes
	front      front

	base    context.Context // of the writers
	cancel  context.CancelFunc
	stop    chan struct{}
	writers sync.WaitGroup
}

// Open connects and starts the writers. The schema must exist (Migrate). Errors: task.Unavailable if the database does not
// answer.
func Open(ctx context.Context, o Options) (*Store, error) {
	o.APIConns = cmp.Or(o.APIConns, 8)
	o.Writers = cmp.Or(o.Writers, 1)
	o.patience.lock, o.patience.turn = cmp.Or(o.patience.lock, lockTimeout), cmp.Or(o.patience.turn, turnPatience)
	o.patience.blocked, o.patience.create = cmp.Or(o.patience.blocked, blockedFor), cmp.Or(o.patience.create, createPatience)
	// The size of a flush bounds how long the rest of the queue waits for it.
	o.Batch = cmp.Or(o.Batch, 500)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{
		q: dbsqlc.New(), log: o.Log, listener: o.Listener, observe: o.Observer,
		lanes: lanes{after: beforeLanes}, turns: turnstile{patience: o.patience.turn}, retries: make(chan struct{}, max(1, o.APIConns/4)), secretKeys: o.SecretKeys,
		ended: newEnded(o.Ended, o.Observer.Ended), widths: o.Widths, patience: o.patience, windowTasks: windowTasks, windowPushes: windowPushes, statTasks: statTasks, tells: o.Tells, base: run, cancel: cancel, stop: make(chan struct{}),
	}
	if err := s.connect(ctx, o); err != nil {
		cancel()
		return nil, err
	}
	s.View = View{s: s, db: s.api}
	if o.RowSecurity {
		var err error
		if s.withoutRowSecurity, err = admitCallers(ctx, s.api.Pool); err != nil {
			s.cancel()
			s.disconnect()
			return nil, translate("row-level security", err)
		}
		s.rowSecurity = s.withoutRowSecurity == ""
	}
	if s.ended != nil {
		s.writers.Go(func() { s.ended.tasks.Expire(s.stop) })
	}
	s.records = newBatcher(o.Batch, timed(s, s.writeRecords), s.stuck("push_record"))
	s.writers.Go(func() { s.records.run(run, s.stop) })
	for range o.Writers {
		a := newBatcher(o.Batch, timed(s, s.writeAppends), s.stuck("append"))
		c := newBatcher(o.Batch, timed(s, s.writeCreates), s.stuck("create"))
		s.appends, s.creates = append(s.appends, a), append(s.creates, c)
		s.writers.Go(func() { a.run(run, s.stop) })
		s.writers.Go(func() { c.run(run, s.stop) })
	}
	return s, nil
}

// hotConns is the size of the pool hot: claim, catch-up, poll, claim of deliveries, and two for
// rescues and for what gives back and extends claims.
const hotConns = 6

// writeConns is the size of the pool write: the writers of appends and creates, and one of records,
// and a second writer of each for what is blocked.
func writeConns(writers int) int { return 2 * (2*writers + 1) }

const (
	// leaseConns is one more than the keeper uses: after a statement that was given up, its connection
	// takes up to 15 seconds to close.
	leaseConns = 2
	// hintConns are those of the hub: LISTEN and NOTIFY.
	hintConns = 2
)

// Connections is the number of connections that a replica opens at most: those of its store, and
// those of its hub.
func Connections(apiConns, writers int) int {
	return apiConns + hotConns + writeConns(writers) + leaseConns + hintConns
}

// lockTimeout bounds how long a statement waits for a lock.
const lockTimeout = 4 * time.Second

// blockedAfter bounds how long a writer waits for a lock. All items of its statement wait with it;
// then the second writer retries them, one task at a time.
const blockedAfter = 100 * time.Millisecond

// pingTimeout bounds the ping of a connection that was idle for a second or more. Without an answer
// the pool replaces the connection.
const pingTimeout = 2 * time.Second

func (s *Store) openPool(ctx context.Context, o Options, conns int, statementTimeout, lockTimeout time.Duration) (*pool, error) {
	cfg, err := pgurl.ParsePool(o.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(conns)
	if conns > leaseConns {
		cfg.MinIdleConns = 1
	}
	cfg.HealthCheckPeriod = 15 * time.Second
	cfg.PingTimeout = pingTimeout
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		registerCodecs(c.TypeMap())
		if conns == leaseConns {
			s.moves.leased(c)
		}
		return nil
	}
	if conns != leaseConns {
		cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, s.moves.lapsed() }
	}
	password := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if s.unprepared.Load() {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return password(ctx, c)
	}
	s.moves.hosts(cfg.ConnConfig)
	cfg.ConnConfig.DialFunc = s.moves.dials(cfg.ConnConfig.DialFunc)
	closes := cfg.ConnConfig.OnPgError
	cfg.ConnConfig.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		switch {
		case err.Code == readOnly:
			go s.moves.reset()
		case o.Pooled && slices.Contains(lostStatement, err.Code):
			go s.unprepare()
		}
		return closes(c, err)
	}
	cfg.ConnConfig.Tracer = o.Tracer
	p := cfg.ConnConfig.RuntimeParams
	if p["application_name"] == "" {
		p["application_name"] = "holdfast"
	}
	if o.Pooled {
		// A prepared statement belongs to a session, and the pooler may give the next statement
		// another one.
		if !strings.Contains(o.URL, "default_query_exec_mode") {
			cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return newPool(ctx, cfg, statementTimeout)
	}
	for name, value := range map[string]string{
		"timezone":          "UTC",
		"statement_timeout": strconv.FormatInt(statementTimeout.Milliseconds(), 10),
		"lock_timeout":      strconv.FormatInt(lockTimeout.Milliseconds(), 10),
		// Some statements call functions that must see what others have committed meanwhile.
		"default_transaction_isolation":       "read committed",
		"idle_in_transaction_session_timeout": "10s",
		// Every hot statement is an index plan by design. A partition that was analyzed while it
		// was empty would otherwise get a sequential scan, and the cached plan would keep it.
		"enable_seqscan": "off",
		"jit":            "off",
		// Otherwise PostgreSQL would plan each append again, which costs several times its
		// execution: the planner cannot know how short the arrays are.
		"plan_cache_mode": "force_generic_plan",
	} {
		if _, set := p[name]; !set {
			p[name] = value
		}
	}
	return newPool(ctx, cfg, statementTimeout)
}

// lostStatement are the SQLSTATEs of a prepared statement that is missing or already there. Behind a
// pooler they mean that it does not keep a client's prepared statements.
var lostStatement = []string{"26000", "42P05"}

// unprepare makes the pools prepare no statement in PostgreSQL any more. Their connections are
// replaced.
func (s *Store) unprepare() {
	if s.unprepared.Swap(true) {
		return
	}
	s.log.Error("the pooler loses prepared statements, so the server stops using them; remove default_query_exec_mode from database_url")
	s.moves.reset()
}

// Close writes the queued items, for as long as ctx allows, and disconnects.
func (s *Store) Close(ctx context.Context) {
	close(s.stop)
	done := make(chan struct{})
	go func() { s.writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.log.Warn("stop timed out with writes still queued")
	}
	s.cancel()
	<-done
	s.disconnect()
}

func (s *Store) connect(ctx context.Context, o Options) (err error) {
	for _, p := range []struct {
		to               **pool
		conns            int
		statementTimeout time.Duration
		lockTimeout      time.Duration
	}{
		{&s.api, o.APIConns, 5 * time.Second, o.patience.lock},
		{&s.hot, hotConns, 30 * time.Second, o.patience.lock},
		{&s.write, writeConns(o.Writers), 30 * time.Second, blockedAfter},
		{&s.lease, leaseConns, 5 * time.Second, o.patience.lock},
	} {
		if *p.to, err = s.openPool(ctx, o, p.conns, p.statementTimeout, p.lockTimeout); err != nil {
			s.disconnect()
			return err
		}
		s.moves.add(*p.to)
	}
	return nil
}

func (s *Store) disconnect() {
	for _, p := range s.moves.pools {
		p.Close()
	}
}

// WithoutRowSecurity returns why callers' statements run without the requested row-level security.
// It returns "" if they run under it, or if it was not requested.
func (s *Store) WithoutRowSecurity() string { return s.withoutRowSecurity }

// Pools returns the connection pools for metrics, by name.
func (s *Store) Pools() map[string]*pgxpool.Pool {
	return map[string]*pgxpool.Pool{"api": s.api.Pool, "hot": s.hot.Pool, "write": s.write.Pool, "lease": s.lease.Pool}
}

// shard sends all writes of one task through one writer. The tail of a UUIDv7 is random.
func (s *Store) shard(id task.ID) int {
	return int(binary.BigEndian.Uint32(id[12:]) % uint32(len(s.appends)))
}

func (s *Store) flushed(kind string, items int, since time.Time) {
	s.health.trouble.Store(nil)
	if s.observe.Flushed != nil {
		s.observe.Flushed(kind, items, time.Since(since))
	}
}

// retried logs and counts a retry, and creates a partition if one is missing. It is called before
// each retry.
func (s *Store) retried(ctx context.Context, kind string, err error, try int) {
	s.provide(ctx, err)
	s.health.trouble.Store(&trouble{err, time.Now()})
	if s.observe.Retried != nil {
		s.observe.Retried(kind)
	}
	var pg *pgconn.PgError
	if try == 0 && (!errors.As(err, &pg) || pg.Code != moved) {
		s.log.Warn("write failed; retrying", "kind", kind, "error", err)
	}
}

// stuck returns the report of a batcher about a task that another session has locked for seconds.
func (s *Store) stuck(kind string) func(task.ID) {
	return func(id task.ID) {
		s.log.Warn("another session's lock blocks writes of a task; they are retried", "kind", kind, "task", id.String(), "error", ErrBlocked)
	}
}

// NewID returns a new id: a UUIDv7 with the local time. Tasks get theirs from NewTaskID.
func NewID() task.ID { return task.ID(uuid.Must(uuid.NewV7())) }
