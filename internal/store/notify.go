package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

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
			return translate("notify", err)
		}
	}
	err := n.q.NotifySend(ctx, n.conn, payloads)
	if err != nil {
		n.Close()
	}
	return translate("notify", err)
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
