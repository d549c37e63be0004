// Package pgurl turns database URLs into connection settings that survive a failover.
//
// A URL may name several hosts, or one name that moves to another server. So a connection is used
// only if the server accepts writes, each host gets a time-out of its own, and a connection whose
// server turns out to be read-only or to stop is closed. Parameters in the URL have priority.
package pgurl

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// connectTimeout is for each host of a URL (connect_timeout).
	connectTimeout = 2 * time.Second
	// ackTimeout bounds how long sent data may be without an acknowledgement by the server's kernel.
	// Otherwise Linux would wait for a quarter of an hour.
	ackTimeout = 10 * time.Second
)

// Before completes the settings of a connection just before it is opened: it reads the password.
type Before func(context.Context, *pgx.ConnConfig) error

// Parse returns the settings of single connections, and what to call before each of them. Connect does both.
func Parse(url string) (*pgx.ConnConfig, Before, error) {
	plain, before, err := split(url)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := pgx.ParseConfig(plain)
	if err != nil {
		return nil, nil, fmt.Errorf("database url: %w", err)
	}
	survive(cfg)
	speak(cfg)
	return cfg, before, nil
}

// ParsePool returns the settings of a pool.
func ParsePool(url string) (*pgxpool.Config, error) {
	cfg, err := ParseAny(url)
	if err != nil {
		return nil, err
	}
	survive(cfg.ConnConfig)
	return cfg, nil
}

// ParseAny returns the settings of a pool that also connects to servers that take no writes, and waits for them as the URL
// says.
func ParseAny(url string) (*pgxpool.Config, error) {
	plain, before, err := split(url)
	if err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(plain)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	speak(cfg.ConnConfig)
	cfg.BeforeConnect = before
	return cfg, nil
}

// Connect opens a connection. The changes are made to its settings before.
func Connect(ctx context.Context, url string, changes ...func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	cfg, before, err := Parse(url)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		change(cfg)
	}
	return connect(ctx, cfg, before)
}

// ConnectAs opens a connection with the settings of a pool.
func ConnectAs(ctx context.Context, pool *pgxpool.Config) (*pgx.Conn, error) {
	return connect(ctx, pool.ConnConfig, pool.BeforeConnect)
}

func connect(ctx context.Context, cfg *pgx.ConnConfig, before Before) (*pgx.Conn, error) {
	if before != nil {
		cfg = cfg.Copy()
		if err := before(ctx, cfg); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// speak sets what pgx needs of a session, whatever the role or the database has.
func speak(cfg *pgx.ConnConfig) {
	cfg.RuntimeParams["client_encoding"], cfg.RuntimeParams["standard_conforming_strings"] = "UTF8", "on"
}

func survive(cfg *pgx.ConnConfig) {
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if !strings.Contains(cfg.ConnString(), "target_session_attrs") && os.Getenv("PGTARGETSESSIONATTRS") == "" {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	cfg.DialFunc = (&net.Dialer{
		Timeout:         cfg.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         boundAcks,
	}).DialContext
	closes := cfg.OnPgError
	cfg.OnPgError = func(c *pgconn.PgConn, err *pgconn.PgError) bool {
		return closes(c, err) && !Left(err)
	}
}

// Left reports whether an error says that the server takes no writes any more: it is read-only, or
// it stops.
func Left(err *pgconn.PgError) bool {
	switch err.Code {
	case "25006", "57P01", "57P02", "57P03":
		return true
	}
	return false
}
