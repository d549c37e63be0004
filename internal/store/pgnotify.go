package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// Channel is the one NOTIFY channel of all replicas.
const Channel = "holdfast"

// Notifier sends hints on its own connection. Its commits do not wait for the disk
// (synchronous_commit=off), because NOTIFY holds a cluster-wide lock until its commit is done. It
// is not safe for concurrent use.
type Notifier struct {
	url  string
	conn *pgx.Conn
	q    *dbsqlc.Queries
}

// NewNotifier returns a notifier. It connects on the first Send.
func NewNotifier(url string) *Notifier { return &Notifier{url: url, q: dbsqlc.New()} }

// Send sends payloads of at most 7,999 bytes each. After an error the next call opens a new
// connection, as Send itself does if the database has closed an idle one: it may be back by now.
func (n *Notifier) Send(ctx context.Context, payloads []string) error {
	idle := n.conn
	err := n.send(ctx, payloads)
	if err != nil && idle != nil && idle.IsClosed() && !errors.Is(err, context.DeadlineExceeded) {
		n.conn = nil
		err = n.send(ctx, payloads)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == queueFull && n.conn != nil {
		n.trim(ctx)
	}
	if err != nil {
		n.Close()
	}
	return translate("notify", err)
}

// queueFull is the SQLSTATE of a NOTIFY when the queue is full: it holds 8 GiB, because a listener
// in any database of the server has not read for too long.
const queueFull = "54000"

// trim frees space in the queue after the slow listener has read on or has disconnected. PostgreSQL
// does that only after a successful NOTIFY, so a full queue would stay full.
func (n *Notifier) trim(ctx context.Context) {
	// It removes 32,768 files, which took 6 s on an idle machine and more than a minute on a busy
	// one. Nothing else can happen meanwhile: no hint can be sent.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// Ignore the result and the error: the next NOTIFY shows whether it helped.
	_, _ = n.q.NotifyQueueTrim(ctx, n.conn)
}

// crowded is the share of the notification queue in use from which a silent listener is suspected of
// holding it.
const crowded = 0.5

// Relisten makes a silent listener read on if the notification queue is filling up, and reports
// whether it did. A NOTIFY that does not fit aborts and leaves its pages, but wakes no listener. So
// nobody reads these pages, and the queue stays full. A session that stops to listen and starts
// again begins behind them. Hints sent in between do not reach it.
func Relisten(ctx context.Context, conn *pgx.Conn) (bool, error) {
	used, err := dbsqlc.New().NotifyQueueTrim(ctx, conn)
	if err != nil || used < crowded {
		return false, translate("listen", err)
	}
	// Two transactions: PostgreSQL forgets the position at the end of the first.
	for _, sql := range []string{"UNLISTEN *", "LISTEN " + Channel} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return false, translate("listen", err)
		}
	}
	_, err = dbsqlc.New().NotifyQueueTrim(ctx, conn)
	return true, translate("listen", err)
}

// SessionBusy reports whether a session with this process id and name executes a statement.
func SessionBusy(ctx context.Context, url string, pid uint32, name string) (bool, error) {
	conn, err := pgurl.Connect(ctx, url)
	if err != nil {
		return false, translate("look for a session", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	busy, err := dbsqlc.New().SessionBusy(ctx, conn, int32(pid), name)
	return busy, translate("look for a session", err)
}

func (n *Notifier) send(ctx context.Context, payloads []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if n.conn == nil {
		var err error
		n.conn, err = pgurl.Connect(ctx, n.url, func(cfg *pgx.ConnConfig) {
			cfg.RuntimeParams["application_name"] = "holdfast notifier"
			cfg.RuntimeParams["synchronous_commit"] = "off"
		})
		if err != nil {
			n.conn = nil
			return err
		}
	}
	return n.q.NotifySend(ctx, n.conn, payloads)
}

// Close ends the connection.
func (n *Notifier) Close() {
	if n.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.conn.Close(ctx)
	n.conn = nil
}
