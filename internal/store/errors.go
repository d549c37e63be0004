package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/pg/partition"
	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

// retryAfter is the delay that a client is told to wait when the database is unavailable.
const retryAfter = 2 * time.Second

// failure classifies the driver's errors by what the caller can do about them.
type failure int

const (
	failFinal     failure = iota // the statement itself is wrong; a retry would fail, too
	failUnsent                   // the server cannot have seen it
	failAborted                  // the server rolled it back
	failOddly                    // the server rolled it back for a reason that usually passes, but may stay
	failBlocked                  // the server rolled it back: it waited for a lock, or ran, for too long
	failUnknown                  // it may or may not have been committed
	failCancelled                // the caller gave up
)

func classify(err error) failure {
	// Check this before the server's error: the server also sends one when it refuses a connection
	// ("the database system is starting up"). Then no statement has reached it.
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) && !errors.Is(err, context.Canceled) {
		return failUnsent
	}
	var pg *pgconn.PgError
	switch {
	case strings.HasSuffix(err.Error(), "message body too large"):
		// The driver calls this safe to retry, because nothing was sent. But every retry would
		// fail, too.
		return failFinal
	case errors.As(err, &pg):
		switch {
		case strings.HasPrefix(pg.Code, "57P"), strings.HasPrefix(pg.Code, "08"):
			// The server is stopping or closed this session. That can happen at any point of a
			// statement.
			return failUnknown
		case strings.HasPrefix(pg.Code, "40"), strings.HasPrefix(pg.Code, "53"),
			pg.Code == "25006":
			// Deadlock, serialization, out of resources, read-only standby.
			return failAborted
		case pg.Code == "55P03", pg.Code == "57014":
			return failBlocked
		}
		if _, missing := partition.Missing(err); missing {
			return failAborted
		}
		if slices.Contains(odd, pg.Code) && (pg.Code != "0A000" || strings.Contains(pg.Message, "cached plan")) {
			return failOddly
		}
		return failFinal
	case errors.Is(err, context.Canceled) && !pgconn.SafeToRetry(err):
		return failCancelled
	case pgconn.SafeToRetry(err):
		return failUnsent
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.Timeout(err) || strings.Contains(err.Error(), "conn closed") {
		return failUnknown
	}
	return failFinal
}

// odd are SQLSTATEs that say nothing about the statement: a prepared statement that is missing or
// already there (behind a pooler), a cached plan of an older schema (0A000), a time-out of the
// transaction, an I/O error, an internal error.
var odd = []string{"26000", "42P05", "0A000", "25P03", "25P04", "58000", "58030", "XX000"}

// oddTries is how often a writer sends a statement that fails oddly, over about six seconds.
const oddTries = 10

// classifyTry is classify for a writer that repeats a statement without a limit. A statement that
// fails oddly again and again is wrong.
func classifyTry(err error, try int) failure {
	f := classify(err)
	switch {
	case f == failOddly && try+1 >= oddTries:
		return failFinal
	case f == failOddly:
		return failAborted
	}
	return f
}

// moved is the SQLSTATE of a statement that tried to lock a row while the row moved to another
// partition. A task that ends moves out of the partition of open tasks.
const moved = "40001"

// passing reports whether PostgreSQL rolled a statement back for a temporary reason, so that a
// retry can succeed: the row of a task moved, a deadlock, or a missing partition (Store.provide
// creates it).
func passing(err error) bool {
	_, missing := partition.Missing(err)
	var pg *pgconn.PgError
	return missing || errors.As(err, &pg) && strings.HasPrefix(pg.Code, "40")
}

// lockedOut reports whether a statement waited too long for another session's lock.
func lockedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// duplicate reports whether a row with the same key is there.
func duplicate(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}

// ErrBlocked says that another session's lock blocks a write that does not wait.
var ErrBlocked = &task.Error{Kind: task.Unavailable, Msg: "another session has locked the task; retry", RetryAfter: retryAfter}

// Blocked reports whether err means that another session's lock has blocked a write.
func Blocked(err error) bool { return errors.Is(err, ErrBlocked) || lockedOut(err) }

// tooSlow reports whether a statement ran out of time, on the server or here, although its caller still waits.
func tooSlow(ctx context.Context, err error) bool {
	var pg *pgconn.PgError
	return ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.As(err, &pg) && pg.Code == "57014")
}

// unavailable reports whether err means that the database is unavailable, and not that the
// statement is wrong.
func unavailable(err error) bool {
	f := classify(err)
	return f == failUnsent || f == failAborted || f == failOddly || f == failBlocked || f == failUnknown
}

// translate turns a driver's error into a domain error.
func translate(doing string, err error) error {
	if err == nil {
		return nil
	}
	var known *task.Error
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return task.NotFound
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &task.Error{Kind: task.Unavailable, Msg: "the request ended before the database answered", RetryAfter: retryAfter, Cause: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" {
		return &task.Error{Kind: task.Unavailable, Msg: "the database did not answer in time", RetryAfter: retryAfter, Cause: err}
	}
	if unavailable(err) {
		return &task.Error{Kind: task.Unavailable, Msg: unavailability(err), RetryAfter: retryAfter, Cause: pgurl.Short(err)}
	}
	return &task.Error{Kind: task.Internal, Cause: fmt.Errorf("%s: %w", doing, err)}
}

// Away reports whether an error means that the database may be out of reach: no connection is made, or one was lost.
func Away(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	var known *task.Error
	switch {
	case errors.As(err, &connect):
		return true
	case errors.As(err, &pg):
		return classify(pg) == failUnknown
	}
	// An agent's connections are lost, too, so it must be an error of this package.
	return errors.As(err, &known) && known.Kind == task.Unavailable && known.Cause != nil &&
		(classify(known.Cause) == failUnknown || classify(known.Cause) == failUnsent || errors.Is(known.Cause, context.DeadlineExceeded))
}

// unavailability says in a few words why the database does not write.
func unavailability(err error) string {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && pg.Code == diskFull:
		return "the disk of the database is full"
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.As(err, &pg) && pg.Code == readOnly:
		return "the database is read-only"
	case lockedOut(err):
		return "another session has locked what the request needs"
	}
	return "the database is not reachable"
}

const (
	diskFull = "53100"
	readOnly = "25006"
)
