package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/store/dbsqlc"
)

// Channel is the one NOTIFY channel of all replicas.
const Channel = "holdfast"

// Notifier sends hints on a connection of its own. Its commits do not wait for
// the disk (synchronous_commit=off), because NOTIFY holds a lock of the whole
// cluster until its commit is done. It belongs to one goroutine.
type Notifier struct {
	url  string
	conn *pgx.Conn
	q    *dbsqlc.Queries
}

// NewNotifier makes a notifier that connects when it first sends.
func NewNotifier(url string) *Notifier { return &Notifier{url: url, q: dbsqlc.New()} }

// Send sends payloads of at most 7,999 bytes each. After an error the next call
// makes a new connection.
func (n *Notifier) Send(ctx context.Context, payloads []string) error {
	err := n.send(ctx, payloads)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == queueFull && n.conn != nil {
		n.trim(ctx)
	}
	if err != nil {
		n.Close()
	}
	return translate("notify", err)
}

// queueFull is the SQLSTATE of a NOTIFY that finds no room: a listener, of any
// database of the server, has not read for so long that the queue holds 8 GiB.
const queueFull = "54000"

// trim makes room when the listener that held the queue up has read on or is gone.
// PostgreSQL looks for that only behind a NOTIFY that succeeds, so a queue that was
// full once would stay it.
func (n *Notifier) trim(ctx context.Context) {
	// It removes 32,768 files, which took 6 s on an idle machine and more than a minute on a busy one. There is nothing
	// else to do meanwhile: no hint can be sent.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	// What it says of the queue is of no use here, nor is an error: the next NOTIFY tells.
	_, _ = n.q.NotifyQueueTrim(ctx, n.conn)
}

func (n *Notifier) send(ctx context.Context, payloads []string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if n.conn == nil {
		cfg, err := pgx.ParseConfig(n.url)
		if err != nil {
			return err
		}
		cfg.RuntimeParams["application_name"] = "holdfast notifier"
		cfg.RuntimeParams["synchronous_commit"] = "off"
		if n.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
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
