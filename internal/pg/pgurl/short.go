package pgurl

import (
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Short returns an error of a connection attempt with a text in one line, and other errors unchanged.
func Short(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	return &short{err, Causes(connect)}
}

type short struct {
	error
	text string
}

func (s *short) Error() string { return s.text }
func (s *short) Unwrap() error { return s.error }

// Causes returns the cause of each try, once. Without sslmode the driver tries TLS first, so that a server without TLS refuses
// it tells nothing, if there is another cause.
func Causes(connect *pgconn.ConnectError) string {
	var out, noTLS []string
	for line := range strings.Lines(connect.Unwrap().Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "hostname resolving error: ")
		switch {
		case line == "" || slices.Contains(out, line):
		case strings.HasSuffix(line, "server refused TLS connection"):
			noTLS = append(noTLS, line)
		default:
			out = append(out, line)
		}
	}
	if len(out) == 0 {
		out = noTLS
	}
	return strings.Join(out, "; ")
}
