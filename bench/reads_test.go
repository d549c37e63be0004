package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/load"
)

// coldConfig keeps no ended task in memory: each read is the first one.
var coldConfig = strings.Replace(config, "limits: {", "limits: {ended_tasks: 1KiB, ", 1)

// listed is how many tasks a page has.
const listed = 10

// reading is a way to read a task that has ended. Its documents are those that the client gets.
type reading struct {
	name string
	call func(c *load.Conn, target, newest *load.Target, id string) (read int, err error)
}

var readings = []reading{
	{"get", func(c *load.Conn, target, _ *load.Target, id string) (int, error) {
		body, err := c.Call(target.Request("tasks/get", load.TaskQuery(id), ""))
		return len(body), err
	}},
	{"resume", func(_ *load.Conn, target, _ *load.Target, id string) (read int, err error) {
		// The server closes the connection after a stream.
		c, err := target.Dial(context.Background())
		if err != nil {
			return 0, err
		}
		defer func() { _ = c.Close() }()
		err = c.Stream(target.Request("tasks/resubscribe", load.TaskQuery(id), "0"), func(data []byte) error {
			read += len(data)
			return nil
		})
		return read, err
	}},
	{"list", func(c *load.Conn, _, newest *load.Target, _ string) (int, error) {
		body, err := c.Call(newest.Request("ListTasks", fmt.Appendf(nil, `{"pageSize":%d,"includeArtifacts":true}`, listed), ""))
		return len(body), err
	}},
}

// reads reads tasks that have ended, whole: one by its id, one as a stream from its first event, and pages of them with their
// artifacts. Warm reads are of one task, cold ones of many, by a replica that keeps none.
func reads(b *testing.B) {
	b.Helper()
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprintf("chunks=%d", n), func(b *testing.B) {
			cold := newClusterWith(b, coldConfig, whole)
			warm := startOn(b, cold.dbURL, config, whole)
			var ids []string
			for range 3 * listed {
				ids = append(ids, newTask(b, cold.replicas[0].target, chunks(n)))
			}
			settle(b)
			for _, r := range readings {
				for _, temperature := range []struct {
					name string
					c    *cluster
					ids  []string
				}{{"warm", warm, ids[:1]}, {"cold", cold, ids}} {
					target, newest := temperature.c.replicas[0].target, newestOf(b, temperature.c)
					var next atomic.Int64
					read := func(conn *load.Conn) error {
						got, err := r.call(conn, target, newest, temperature.ids[int(next.Add(1))%len(temperature.ids)])
						if err == nil && got < n*256 {
							err = fmt.Errorf("%d bytes", got)
						}
						return err
					}
					_, _ = repeat(b, target, 1, 3, read)
					for _, conns := range []int{1, 16} {
						b.Run(fmt.Sprintf("%s/%s/inflight=%d", r.name, temperature.name, conns), func(b *testing.B) {
							costly(b, temperature.c, func() int {
								elapsed, took := repeat(b, target, conns, b.N, read)
								metric(b, float64(b.N)/elapsed.Seconds(), "reads/s")
								quantiles(b, took)
								return b.N
							})
						})
					}
				}
			}
		})
	}
}

func newestOf(b *testing.B, c *cluster) *load.Target {
	b.Helper()
	t, err := load.NewTarget(c.replicas[0].URL, http.Header{"A2a-Version": {"1.0"}})
	if err != nil {
		b.Fatal(err)
	}
	return t
}
