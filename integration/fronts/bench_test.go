package fronts

import (
	"bufio"
	"fmt"
	"io"
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
