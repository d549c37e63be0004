package protocol

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

// switchedOn sets every switch to its other value.
const switchedOn = `
limits: {max_block: 1s}
protocol:
  legacy_client_task_ids: true
  v01_reopen_terminal: true
  v01_event_names: true
  blocking_default: return
  version_header: strict
  status_table: 1.0.0
  card_unversioned: strict10
  ambiguous_result: union
`

// probe observes a server from outside, and describes it.
type probe struct {
	key                string
	without, with      string // the observation with the default, and with the switch
	look               func(t *testing.T, r *clustertest.Replica) string
	onlyWhenSwitchedOn bool // with the default it would take a minute
}

var probes = []probe{
	{
		key: "protocol.legacy_client_task_ids", without: "-32001", with: "mine",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			p := params(a2atest.V03, "mine", "echo:x")
			return outcome(t, r, "message/send", p, func(res *a2atest.Result) string { return res.ID })
		},
	},
	{
		key: "protocol.v01_reopen_terminal", without: "-32009", with: "completed b",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			id := "t-" + rand.Text()
			wait(t, r, r.Call("tasks/send", params(a2atest.V01, id, "echo:a")))
			if seen := outcome(t, r, "tasks/send", params(a2atest.V01, id, "echo:b"), func(*a2atest.Result) string { return "" }); seen != "" {
				return seen
			}
			res := wait(t, r, &a2atest.Result{ID: id})
			return res.State() + " " + a2atest.Text(res.Artifacts[0].Parts)
		},
	},
	{
		key: "protocol.v01_event_names", without: "", with: "task_status_update task_artifact_update",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			body := a2atest.Request("tasks/sendSubscribe", params(a2atest.V01, "t-"+rand.Text(), "echo:x"))
			_, stream, _ := r.Exchange(http.MethodPost, "", body)
			var names []string
			for _, m := range regexp.MustCompile(`(?m)^event: (\w+)$`).FindAllStringSubmatch(stream, -1) {
				if !slices.Contains(names, m[1]) {
					names = append(names, m[1])
				}
			}
			return strings.Join(names, " ")
		},
	},
	{
		key: "protocol.blocking_default", without: "completed", with: "submitted",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			return outcome(t, r, "message/send", params(a2atest.V03, "", "echo:x"), (*a2atest.Result).State)
		},
	},
	{
		key: "protocol.version_header", without: "TASK_STATE_COMPLETED", with: "-32009",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			got := r.Ask("SendMessage", params(a2atest.V10, "", "echo:x"))
			return regexp.MustCompile(`TASK_STATE_\w+|-32\d+`).FindString(string(got.Body))
		},
	},
	{
		key: "protocol.status_table", without: "400", with: "409",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			done := wait(t, r, r.Call("message/send", params(a2atest.V03, "", "echo:x")))
			return r.Finish(a2atest.REST10, a2atest.Cancel, a2atest.Say().To(done.ID)).Status
		},
	},
	{
		key: "protocol.card_unversioned", without: "with a url", with: "without a url",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			if strings.Contains(r.Read("/.well-known/agent-card.json"), `"preferredTransport"`) {
				return "with a url"
			}
			return "without a url"
		},
	},
	{
		key: "protocol.ambiguous_result", without: "type", with: "kind type",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			sent := wait(t, r, r.Call("tasks/send", params(a2atest.V01, "", "echo:x")))
			a := r.Ask("tasks/get", object{"id": sent.ID})
			var seen []string
			for _, name := range []string{"kind", "type"} {
				if strings.Contains(string(a.Raw), `"`+name+`":"text"`) {
					seen = append(seen, name)
				}
			}
			return strings.Join(seen, " ")
		},
	},
	{
		key: "limits.max_block", with: "not ended", onlyWhenSwitchedOn: true,
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			p := params(a2atest.V03, "", "hold")
			p["configuration"] = object{"blocking": true}
			return outcome(t, r, "message/send", p, func(res *a2atest.Result) string {
				require.Contains(t, []string{"submitted", "working"}, res.State())
				return "not ended"
			})
		},
	},
	{
		key: "agents[].dedupe_message_id", without: "2 tasks", with: "1 tasks",
		look: func(t *testing.T, r *clustertest.Replica) string {
			t.Helper()
			p := params(a2atest.V03, "", "echo:x")
			one, two := r.Call("message/send", p), r.Call("message/send", p)
			ids := slices.Compact([]string{one.ID, two.ID})
			return fmt.Sprint(len(ids), " tasks")
		},
	},
}

// params is a message for requests that name no version.
func params(w *a2atest.Wire, taskID, text string) object {
	return w.Params(a2atest.Send, a2atest.Say(text).To(taskID))
}

// outcome is the result of a request, or the code of its error.
func outcome(t *testing.T, r *clustertest.Replica, method string, params any, see func(*a2atest.Result) string) string {
	t.Helper()
	a := r.Ask(method, params)
	require.Equal(t, http.StatusOK, a.HTTP)
	if a.Error != nil {
		return fmt.Sprint(a.Error.Code)
	}
	res, err := a.Result()
	require.NoError(t, err)
	return see(res)
}

// wait waits for the end of a task.
func wait(t *testing.T, r *clustertest.Replica, sent *a2atest.Result) *a2atest.Result {
	t.Helper()
	return r.Settled(sent.ID)
}

// Every switch exists, is off by default, and does what the documents say.
func TestSwitches(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)^\\| `(protocol\\.\\w+)`").FindAllStringSubmatch(string(page), -1) {
		require.True(t, slices.ContainsFunc(probes, func(p probe) bool { return p.key == m[1] }), "no probe observes %s", m[1])
	}
	db := clustertest.NewDB(t)
	without := clustertest.Start(t, clustertest.Options{Name: "without", DB: db.URL, Config: clustertest.Steady})
	on := switchedOn + clustertest.Replace(clustertest.Settings, "  - name: demo", "  - name: demo\n    dedupe_message_id: true")
	with := clustertest.Start(t, clustertest.Options{Name: "with", DB: db.URL, Config: on})
	for _, p := range probes {
		t.Run(p.key, func(t *testing.T) {
			t.Parallel()
			if !p.onlyWhenSwitchedOn {
				require.Equal(t, p.without, p.look(t, without))
			}
			require.Equal(t, p.with, p.look(t, with))
		})
	}
}
