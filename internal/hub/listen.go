package hub

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/store"
)

const (
	pingTimeout = 4 * time.Second
	selfTest    = 3 * time.Second
	// listenTimeout is the longest wait for a LISTEN that the database executes. It reads the whole
	// notification queue first, up to 8 GiB.
	listenTimeout = 10 * time.Minute

	sessionName = "holdfast listener"
)

// listen keeps a LISTEN connection until ctx ends. After an error it opens a new connection, with
// backoff.
func (h *Hub) listen(ctx context.Context) error {
	for try := 0; ctx.Err() == nil; try++ {
		began := time.Now()
		err := h.listenOnce(ctx)
		h.connected.Store(false)
		h.observeListening(false)
		if ctx.Err() != nil {
			break
		}
		level := slog.LevelDebug
		if h.deafSince.IsZero() {
			h.deafSince, level = time.Now(), slog.LevelWarn
		}
		h.opt.Log.Log(ctx, level, "listener lost its connection; polling until it is back", "error", pgurl.Short(err))
		if time.Since(began) > time.Minute {
			try = 0
		}
		select {
		case <-time.After(min(100*time.Millisecond<<min(try, 6), 5*time.Second)):
		case <-ctx.Done():
		}
	}
	return nil //nolint:nilerr // the loop ends with ctx
}

func (h *Hub) listenOnce(ctx context.Context) error {
	conn, err := pgurl.Connect(ctx, h.opt.URL, func(cfg *pgx.ConnConfig) {
		cfg.RuntimeParams["application_name"] = sessionName
		// A statement that is prepared here would stay in a pooler's session.
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err := h.patiently(ctx, conn, func(ctx context.Context) error {
		_, err := conn.Exec(ctx, "LISTEN "+store.Channel)
		return err
	}); err != nil {
		return err
	}
	// Hints sent before this moment did not reach this process.
	h.connected.Store(true)
	h.observeListening(true)
	sent := h.notify.tests.Load()
	h.notify.send("h:")
	h.test()
	h.mayHaveMissed()

	tested := time.Now()
	for {
		within := h.opt.PingInterval
		if !h.works.Load() {
			within = min(within, selfTest)
		}
		waiting, cancel := context.WithTimeout(ctx, within)
		note, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			h.hear(note.Payload)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err):
			// A dead server is silent, too, and so is a full queue, so ask. The connection stays
			// usable after a wait that timed out.
			again := false
			if err := h.patiently(ctx, conn, func(ctx context.Context) (err error) {
				again, err = store.Relisten(ctx, conn)
				return err
			}); err != nil {
				return err
			}
			if again {
				h.opt.Log.Warn("the notification queue is filling up; the listener started again")
				h.mayHaveMissed()
			}
		default:
			return err
		}
		if !h.works.Load() && time.Since(tested) >= selfTest {
			// After a restart of the database the first test may be lost with the connection that
			// sends it.
			if h.notify.tests.Load()-sent >= 2 && !h.deaf.Swap(true) {
				if h.deafSince.IsZero() {
					h.deafSince = time.Now()
				}
				detail, _ := h.Health()
				h.opt.Log.Warn("notifications do not arrive", "detail", detail)
			}
			// The test message itself may have been lost, so send another. This must not wait for
			// silence: other processes may send all the time.
			h.test()
			tested = time.Now()
		}
	}
}

// patiently waits for statements of the listener as long as the database executes them. If it gave up
// such a statement, the database would go on with it all the same, and the next try would compete with
// it: after a while no LISTEN would end.
func (h *Hub) patiently(ctx context.Context, conn *pgx.Conn, do func(context.Context) error) error {
	return patiently(ctx, func(ctx context.Context) bool { return h.executes(ctx, conn.PgConn().PID()) }, do)
}

func patiently(ctx context.Context, executes func(context.Context) bool, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(pingTimeout):
			if !executes(ctx) {
				cancel()
			}
		}
	}
}

// executes reports whether a session executes a statement. A database that does not tell is not
// reached, and the listener must try again.
func (h *Hub) executes(ctx context.Context, pid uint32) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	busy, err := store.SessionBusy(ctx, h.opt.URL, pid, sessionName)
	return busy && err == nil
}

// test sends a notification that this process must receive itself.
func (h *Hub) test() { h.notify.send("t:" + strconv.FormatInt(time.Now().UnixNano(), 36)) }

// heardSelf ends the self-test: the process has received its own notification.
func (h *Hub) heardSelf(string) {
	if !h.works.Swap(true) {
		h.opt.Log.Debug("listener received its own test; LISTEN works")
	}
	h.deaf.Store(false)
	if !h.deafSince.IsZero() {
		h.opt.Log.Info("listening again", "took", time.Since(h.deafSince))
		h.deafSince = time.Time{}
	}
}

func (h *Hub) observeListening(on bool) {
	if !on {
		h.works.Store(false)
	}
	if h.opt.Observer.Listening != nil {
		h.opt.Observer.Listening(on)
	}
}
