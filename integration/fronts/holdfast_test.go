package fronts

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// Another Holdfast is a server of every version and binding. Its database counts what it was asked to do.

func TestFrontOfEveryVersion(t *testing.T) {
	t.Parallel()
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	plain := fmt.Sprintf("url: %q, version: ", up.URL)
	grpc := fmt.Sprintf("url: http://%s, binding: grpc, version: ", up.GRPC)
	wires := map[string]string{
		"grpc10": grpc + "1.0", "grpc03": grpc + "0.3",
		"rpc10": plain + "1.0, binding: jsonrpc", "rest10": plain + "1.0, binding: http+json",
		"rpc03": plain + "0.3, binding: jsonrpc", "rest03": plain + "0.3, binding: http+json", "rpc01": plain + `"0.1", binding: jsonrpc`,
	}
	config := clustertest.Settings
	names := []string{"auto"}
	for name, settings := range wires {
		config += front(name, settings, "") + front(name+"-poll", settings+", stream: false", "")
		names = append(names, name, name+"-poll")
	}
	config += front("auto", fmt.Sprintf("card_url: %q", up.URL), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})

	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := f.In(t)
			send := func(says, task string) *a2atest.Result {
				t.Helper()
				return f.Send(a2atest.V03, a2atest.Say(says).To(task).At(name))
			}
			res := send("chunks=20 size=64 delay=5ms", "")
			require.Equal(t, "completed", res.State(), res.Said())
			clustertest.Indexed(t, a2atest.Pieces(res.Artifacts[0].Parts, 64), 20)

			res = send("data", "")
			require.Equal(t, "completed", res.State(), res.Said())
			data := string(res.Artifacts[0].Parts[0].Data)
			if strings.HasPrefix(name, "grpc") { // numbers are doubles, and members have no order
				require.JSONEq(t, `{"greeting":"hello","big":12345678901234567890,"float":1.0,"list":[1,"two",null,true],"a":{"z":1,"a":2}}`, data)
			} else {
				require.Equal(t, `"big":12345678901234567890,"float":1.0,"list":[1,"two",null,true],"a":{"z":1,"a":2}}`,
					strings.TrimPrefix(data, `{"greeting":"hello",`), "unchanged")
			}

			res = send("ask:which city?", "")
			require.Equal(t, "input-required", res.State())
			require.Equal(t, "which city?", res.Said())
			res = send("Oslo", res.Task())
			require.Equal(t, "completed", res.State(), res.Said())
			require.Equal(t, "You answered: Oslo", text(res))

			res = send("fail:no luck", "")
			require.Equal(t, "failed", res.State())
			require.Equal(t, "no luck", res.Said())
			res = send("crash", "")
			require.Equal(t, "failed", res.State())

			stream := f.Stream(a2atest.V03, a2atest.Say("hold").At(name))
			task := stream.UntilState("working").Task()
			waittest.Eventually(t, "the other server works", func() error {
				return waittest.Unless(len(up.In(t).ListOver(a2atest.V10, a2atest.Say()).Tasks) > 0, "not yet")
			})
			require.Equal(t, "canceled", f.CancelOver(a2atest.Unversioned, a2atest.Say().To(task).At(name)).State())
		})
	}
	t.Cleanup(func() {
		// Cleanups of a parent run after its parallel subtests.
		db := clustertest.OpenDB(t, up.Options.DB)
		waittest.Eventually(t, "the cancels have reached the other server", func() error {
			states := clustertest.Column[string](db, "SELECT DISTINCT state FROM holdfast.v_tasks WHERE state IN ('working', 'submitted', 'canceled')")
			return waittest.Unless(len(states) == 1 && states[0] == "canceled", "%v", states)
		})
		db.Sound()
	})
}

func TestFrontHasTheAgentsCard(t *testing.T) {
	t.Parallel()
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: clustertest.NewDB(t).URL, Config: clustertest.Settings})
	config := clustertest.Settings + front("travel", fmt.Sprintf("card_url: %q", up.URL), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	card := func(url string) (c struct {
		Name, Description   string
		Skills              []struct{ ID string }
		DefaultInputModes   []string
		SupportedInterfaces []struct{ URL string }
	},
	) {
		resp, err := http.Get(url + "/.well-known/agent-card.json")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&c))
		return c
	}
	theirs, ours := card(up.URL), card(f.URL+"/agents/travel")
	require.Equal(t, theirs.Name, ours.Name)
	require.Equal(t, theirs.Description, ours.Description)
	require.Equal(t, theirs.Skills, ours.Skills)
	require.NotEmpty(t, ours.Skills)
	require.Equal(t, theirs.DefaultInputModes, ours.DefaultInputModes)
	for _, i := range ours.SupportedInterfaces {
		require.Contains(t, i.URL, f.URL)
	}
}

// many is how many tasks a test with faults sends.
func many(t *testing.T) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv("HOLDFAST_FRONT_TASKS")); err == nil {
		return n
	}
	return 20
}

// disturbed sends tasks through a front while disturb runs again and again, and checks that each completes with all its
// chunks, that clients' streams are whole, and that the other server was asked once for each.
func disturbed(t *testing.T, settings string, every time.Duration, most int, disturb func(f *clustertest.Replica, up *clustertest.Replica, link *clustertest.Proxy)) {
	t.Helper()
	upDB, db := clustertest.NewDB(t), clustertest.NewDB(t)
	grpc := clustertest.Reserve(t) // the address of the configuration survives a kill
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: upDB.URL, Config: "public_url: http://127.0.0.1:1\n" +
		clustertest.Replace(clustertest.Settings, "grpc_listen: 127.0.0.1:0", "grpc_listen: "+grpc)})
	at := a2atest.Host(up.URL)
	if strings.Contains(settings, "grpc") {
		at = grpc
	}
	link := clustertest.NewProxy(t, at)
	config := clustertest.Settings + front("travel", fmt.Sprintf("url: http://%s, %s", link.Addr, settings), "")
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: db.URL, Config: config})
	const chunks = 40
	delay := max(25*time.Millisecond, every/10)
	n := many(t)
	var tasks []string
	for range n {
		tasks = append(tasks, f.Send(a2atest.V03, a2atest.Say(fmt.Sprintf("chunks=%d size=32 delay=%s", chunks, delay)).At("travel").Detached()).Task())
	}
	done, times := make(chan struct{}), 0
	var faults sync.WaitGroup
	faults.Go(func() {
		for times < most {
			select {
			case <-done:
				return
			case <-time.After(every/2 + rand.N(every)):
				disturb(f, up, link)
				times++
			}
		}
	})
	waittest.Eventually(t, "all tasks have ended", func() error { // each retry waits for longer
		live := clustertest.One[int](db, "SELECT count(*) FROM holdfast.v_tasks WHERE ended_at IS NULL")
		return waittest.Unless(live == 0, "%d live", live)
	})
	close(done)
	faults.Wait()
	require.Positive(t, times)
	f.WaitReady()
	for _, task := range tasks {
		got := f.GetOver(a2atest.Unversioned, a2atest.Say().To(task).At("travel"))
		require.Equal(t, "completed", got.State(), got.Said())
		clustertest.Indexed(t, a2atest.Pieces(got.Artifacts[0].Parts, 32), chunks)
	}
	db.Sound()
	upDB.Sound()
	require.Equal(t, n, clustertest.One[int](upDB, "SELECT count(*) FROM holdfast.v_tasks"), "each message was sent once")
	t.Logf("%d faults; runs that ended early: %v", times, clustertest.Column[string](db, `SELECT payload->>'outcome' || ' ' || count(*) FROM holdfast.task_events WHERE kind = 4 GROUP BY payload->>'outcome'`))
}

func TestCutsBetweenFrontAndAgent(t *testing.T) {
	t.Parallel()
	const often = 200 * time.Millisecond
	for settings, every := range map[string]time.Duration{
		"stream: true": often, "stream: false": often,
		// All calls share one connection, and begin with a handshake.
		"version: 1.0, binding: grpc": 2 * often, "version: 0.3, binding: grpc": 2 * often,
	} {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			// Cuts without an end would leave a slow machine no time to go on.
			disturbed(t, settings, every, 60, func(_, _ *clustertest.Replica, link *clustertest.Proxy) { link.Cut() })
		})
	}
}

// killed are the settings of fronts in tests that kill a side.
var killed = []string{"stream: true", "version: 1.0, binding: grpc"}

func TestKillsOfTheFront(t *testing.T) {
	t.Parallel()
	for _, settings := range killed {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			disturbed(t, settings, 2*time.Second, 3, func(f, _ *clustertest.Replica, _ *clustertest.Proxy) {
				f.Kill()
				f.Run()
			})
		})
	}
}

func TestKillsOfTheAgent(t *testing.T) {
	t.Parallel()
	for _, settings := range killed {
		t.Run(settings, func(t *testing.T) {
			t.Parallel()
			disturbed(t, settings, 2*time.Second, 3, func(_, up *clustertest.Replica, _ *clustertest.Proxy) {
				up.Kill()
				up.Run()
			})
		})
	}
}
