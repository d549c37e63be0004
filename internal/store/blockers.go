package store

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/store/internal/dbsqlc"
)

// Blocker is a session for whose locks others wait.
type Blocker struct {
	PID           int // of the process; 0: a prepared transaction
	Role, Program string
	Waiting       int           // sessions that wait
	Tables        string        // that it has locked as a whole; "": rows
	Age           time.Duration // of its transaction, or of the longest wait if the role may not see the transaction
}

func (b *Blocker) String() string {
	tables := b.Tables
	if tables == "" {
		tables = "rows"
	}
	if b.PID == 0 {
		return fmt.Sprintf("a prepared transaction blocks %d sessions (%s)", b.Waiting, tables)
	}
	return fmt.Sprintf("process %d of role %s (%s) blocks %d sessions (%s); its transaction is at least %s old", b.PID, b.Role, b.Program, b.Waiting, tables, b.Age)
}

// Blockers lists the sessions that block others in the database, at most five, those with the most waiting sessions first.
func Blockers(ctx context.Context, db dbsqlc.DBTX) ([]Blocker, error) {
	rows, err := dbsqlc.New().Blockers(ctx, db)
	if err != nil {
		return nil, translate("look for blockers", err)
	}
	all := make([]Blocker, len(rows))
	for i, r := range rows {
		age := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
		all[i] = Blocker{int(r.Pid), r.Role, r.Program, int(r.Waiting), r.Tables, age}
	}
	return all, nil
}
