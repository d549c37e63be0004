package fronts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// Another Holdfast is a server of every version and binding. Its database counts what it was asked to do.

func TestFrontOfEveryVersion(t *testing.T) {
	t.Parallel()
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady})
	plain := fmt.Sprintf("url: %q, version: ", up.URL)
	grpc := fmt.Sprintf("url: http://%s, binding: grpc, version: ", up.GRPC)
	wires := map[string]string{
		"grpc10": grpc + "1.0", "grpc03": grpc + "0.3",
		"rpc10": plain + "1.0, binding: jsonrpc", "rest10": plain + "1.0, binding: http+json",
		"rpc03": plain + "0.3, binding: jsonrpc", "rest03": plain + "0.3, binding: http+json", "rpc01": plain + `"0.1", binding: jsonrpc`,
	}
	config := clustertest.Steady
	names := []string{"auto"}
	for name, settings := range wires {
		config += inFront(name, settings) + inFront(name+"-poll", settings+", stream: false")
		names = append(names, name, name+"-poll")
	}
	config += inFront("auto", fmt.Sprintf("card_url: %q", up.URL))
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

// A front shows the card of its agent, and checks its signature.
func TestFrontHasTheAgentsCard(t *testing.T) {
	t.Parallel()
	up := clustertest.Start(t, clustertest.Options{Name: "up", DB: clustertest.NewDB(t).URL, Config: clustertest.Steady})
	keys := up.Read("/.well-known/jwks.json")
	config := clustertest.Steady + inFront("travel", fmt.Sprintf("card_url: %q, card_keys: '%s'", up.URL, keys))
	f := clustertest.Start(t, clustertest.Options{Name: "front", DB: clustertest.NewDB(t).URL, Config: config})
	card := func(r *a2atest.Peer) (c struct {
		Name, Description   string
		Skills              []struct{ ID string }
		DefaultInputModes   []string
		SupportedInterfaces []struct{ URL string }
	},
	) {
		require.NoError(t, json.Unmarshal([]byte(r.Read("/.well-known/agent-card.json")), &c))
		return c
	}
	theirs, ours := card(&up.Peer), card(f.Under("/agents/travel"))
	require.Equal(t, theirs.Name, ours.Name)
	require.Equal(t, theirs.Description, ours.Description)
	require.Equal(t, theirs.Skills, ours.Skills)
	require.NotEmpty(t, ours.Skills)
	require.Equal(t, theirs.DefaultInputModes, ours.DefaultInputModes)
	for _, i := range ours.SupportedInterfaces {
		require.Contains(t, i.URL, f.URL)
	}
}
