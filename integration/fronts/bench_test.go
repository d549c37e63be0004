package fronts

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
)

// BenchmarkFront compares sends to an agent on the Go SDK with sends through a front: whole tasks, and the time to the
// first event of the agent on a stream. All of it shares this machine's cores.
func BenchmarkFront(b *testing.B) {
	_, link := startSDK(b)
	config := clustertest.Settings + front("count", fmt.Sprintf("card_url: http://%s", link.Addr), "")
	f := clustertest.Start(b, clustertest.Options{Name: "front", DB: clustertest.NewDB(b).URL, Config: config})
	for _, to := range []struct{ name, url string }{{"direct", "http://" + link.Addr + "/rpc"}, {"front", f.URL + "/agents/count"}} {
		var n atomic.Int64
		request := func(b *testing.B, method string) *http.Response {
			b.Helper()
			resp, err := a2atest.Post(b.Context(), to.url, a2atest.Request(method, a2atest.Object{"message": a2atest.Object{
				"messageId": fmt.Sprint(method, n.Add(1)), "role": "ROLE_USER", "parts": []any{a2atest.Object{"text": "hello"}},
			}}), "A2A-Version", "1.0")
			require.NoError(b, err)
			require.Equal(b, http.StatusOK, resp.StatusCode)
			return resp
		}
		b.Run(to.name+"/tasks", func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp := request(b, "SendMessage")
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					require.NoError(b, err)
					require.Contains(b, string(body), "you said hello")
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
		b.Run(to.name+"/first", func(b *testing.B) {
			var first time.Duration
			for range b.N {
				began := time.Now()
				resp := request(b, "SendStreamingMessage")
				in := bufio.NewReader(resp.Body)
				for {
					line, err := in.ReadString('\n')
					require.NoError(b, err)
					if strings.Contains(line, "at work") {
						break
					}
				}
				first += time.Since(began)
				_, _ = io.Copy(io.Discard, in)
				resp.Body.Close()
			}
			b.ReportMetric(float64(first.Microseconds())/1000/float64(b.N), "ms/first")
		})
	}
}

// BenchmarkNews compares a task that is polled, with the default intervals, with one whose agent sends notifications: how late a
// status is that comes after 15 to 20 seconds of silence, and how often the task is read for it.
func BenchmarkNews(b *testing.B) {
	for _, push := range []bool{false, true} {
		b.Run(fmt.Sprintf("push=%t", push), func(b *testing.B) {
			agent := newStepping()
			up, db := startPushing(b, agent), clustertest.NewDB(b)
			config := clustertest.Settings + fmt.Sprintf("  - {name: up, executor: {kind: a2a, a2a: {card_url: %q, push: %t}}}\n", up.URL, push)
			f := clustertest.Start(b, clustertest.Options{Name: "front", DB: db.URL, Config: config})
			stream := f.Stream(a2atest.V03, a2atest.Say("work").At("up"))
			task := stream.UntilState("submitted").Task()
			step := func(n int) time.Duration {
				began := time.Now()
				agent.step <- struct{}{}
				stream.Until("the step", func(e *a2atest.Event) bool { return e.Said() == fmt.Sprintf("step %d", n) })
				return time.Since(began)
			}
			if push {
				up.awaitAsked(b)
			}
			step(1)
			reads, late := up.readsOf(link(db, task)), time.Duration(0)
			for n := range b.N {
				time.Sleep(15*time.Second + rand.N(5*time.Second))
				late += step(2 + n)
			}
			b.ReportMetric(float64(late.Microseconds())/1000/float64(b.N), "ms/news")
			b.ReportMetric(float64(up.readsOf(link(db, task))-reads)/float64(b.N), "reads/news")
			close(agent.end)
			stream.UntilState("completed")
		})
	}
}
