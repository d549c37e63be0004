package store

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
)

// BenchmarkStatements measures PostgreSQL's processor time for the statements of ordinary tasks: the create with a seat, the
// status working, and an artifact with the end, for as many tasks in each commit as the name says. Linux only.
func BenchmarkStatements(b *testing.B) {
	for kind, whole := range statementKinds {
		for _, size := range []int{1, 4, 16, 64} {
			b.Run(fmt.Sprintf("%s/tasks=%d", kind, size), func(b *testing.B) {
				f := newFixture(b)
				f.whole = whole
				worker := f.worker(time.Hour)
				cfg := f.write.Config().ConnConfig
				c, err := pgx.ConnectConfig(b.Context(), cfg)
				require.NoError(b, err)
				defer c.Close(context.WithoutCancel(b.Context())) //nolint:errcheck // nothing to lose
				registerCodecs(c.TypeMap())
				spent := func() float64 {
					text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", c.PgConn().PID()))
					require.NoError(b, err)
					ns, err := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
					require.NoError(b, err)
					return ns / 1e3
				}
				var took [3]float64
				round := func(rounds int) {
					pens := make([][]*pen, rounds)
					before := spent()
					for r := range pens {
						items := make([]*create, size)
						for i := range items {
							n := fresh("a")
							n.Seat.Worker = worker
							items[i] = newCreate(n)
							items[i].audit = ownerOf(n).of(f.Store).auditedNew(n)
							pens[r] = append(pens[r], &pen{s: f.Store, c: &Claimed{Task: &n.Task}})
						}
						rows, err := f.createRows(b.Context(), c, items)
						require.NoError(b, err)
						require.Len(b, rows, size)
						for i := range rows {
							for _, p := range pens[r] {
								if p.c.Task.ID == task.ID(rows[i].ID) {
									p.c.Task.CreatedAt = rows[i].CreatedAt
									p.c.Fence = FirstFence(p.c.Task)
								}
							}
						}
					}
					took[0] += spent() - before
					for step, evs := range []func() []*task.Event{
						func() []*task.Event { return []*task.Event{status(task.StateWorking)} },
						func() []*task.Event { return []*task.Event{chunk("hello"), status(task.StateCompleted)} },
					} {
						before = spent()
						for _, batch := range pens {
							var items []*Append
							for _, p := range batch {
								a := p.item(nil, evs()...)
								for _, e := range a.Events {
									a.payloads = append(a.payloads, EncodePayload(e))
								}
								items = append(items, a)
							}
							groups, _ := groupAppends(items)
							rows, err := f.appending(groups)(b.Context(), c)
							require.NoError(b, err)
							require.Len(b, rows, size)
						}
						took[step+1] += spent() - before
					}
				}
				round(50)
				took = [3]float64{}
				b.ResetTimer()
				round(b.N)
				for i, name := range []string{"create-db-µs", "working-db-µs", "end-db-µs"} {
					b.ReportMetric(took[i]/float64(b.N), name)
				}
			})
		}
	}
}
