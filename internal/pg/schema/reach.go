package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgurl"
)

// Unreached is a failed attempt to connect to a database, told for operators.
type Unreached struct {
	Detail string // which database, and the cause
	Advice string // what to check
	err    error
}

func (e *Unreached) Error() string { return e.Detail + "; " + e.Advice }

func (e *Unreached) Unwrap() error { return e.err }

// Explain returns an Unreached for an error of a connection attempt, and other errors unchanged. The driver tries every
// address with and without TLS, and reports each try.
func Explain(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	c := connect.Config
	where := fmt.Sprintf("%s as %s on %s", c.Database, c.User, hosts(c))
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		advice := "check the URL, the database role and pg_hba.conf"
		if refused.Code == "53300" {
			advice = "raise max_connections, or lower store.pool_size or the number of replicas"
		}
		return &Unreached{
			Detail: fmt.Sprintf("%s refuses the connection: %s (%s)", where, refused.Message, refused.Code),
			Advice: advice, err: err,
		}
	}
	return &Unreached{
		Detail: fmt.Sprintf("%s is not reachable: %s", where, pgurl.Causes(connect)),
		Advice: "check HOLDFAST_DATABASE_URL, the network and whether PostgreSQL runs", err: err,
	}
}

func hosts(c *pgconn.Config) string {
	all := []string{fmt.Sprintf("%s:%d", c.Host, c.Port)}
	for _, f := range c.Fallbacks {
		if host := fmt.Sprintf("%s:%d", f.Host, f.Port); !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return strings.Join(all, ", ")
}
