package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// switchedOn is the other value of every switch.
const switchedOn = `
limits: {max_block: 1s}
protocol:
  legacy_client_task_ids: true
  v01_reopen_terminal: true
  blocking_default: return
  version_header: strict
  status_table: 1.0.0
  card_unversioned: strict10
  ambiguous_result: union
`

// probe looks at a server from outside, and says what it saw.
type probe struct {
	key                string
	without, with      string // what is seen with the default, and with the switch
	look               func(t *testing.T, r *replica) string
	onlyWhenSwitchedOn bool // it would take a minute
}

var probes = []probe{
	{
		key: "protocol.legacy_client_task_ids", without: "-32001", with: "mine",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			params := v03.params("mine", "echo:x")
			return outcome(t, r, "message/send", params, func(res *result) string { return res.ID })
		},
	},
	{
		key: "protocol.v01_reopen_terminal", without: "-32009", with: "completed b",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			id := v01.params("", "")["id"].(string)
			wait(t, r, r.call("tasks/send", v01.params(id, "echo:a")))
			if seen := outcome(t, r, "tasks/send", v01.params(id, "echo:b"), func(*result) string { return "" }); seen != "" {
				return seen
			}
			res := wait(t, r, &result{ID: id})
			return res.state() + " " + text(res.Artifacts[0].Parts)
		},
	},
	{
		key: "protocol.blocking_default", without: "completed", with: "submitted",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			return outcome(t, r, "message/send", v03.params("", "echo:x"), (*result).state)
		},
	},
	{
		key: "protocol.version_header", without: "TASK_STATE_COMPLETED", with: "-32009",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			resp, err := post(short(t, patience), r.url+"/", request("SendMessage", object{"message": object{
				"messageId": "m", "role": "ROLE_USER", "parts": []any{object{"text": "echo:x"}},
			}}))
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return regexp.MustCompile(`TASK_STATE_\w+|-32\d+`).FindString(string(body))
		},
	},
	{
		key: "protocol.status_table", without: "400", with: "409",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			done := wait(t, r, r.call("message/send", v03.params("", "echo:x")))
			resp, err := post(short(t, patience), r.url+"/tasks/"+done.ID+":cancel", nil, "A2A-Version", "1.0")
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			return fmt.Sprint(resp.StatusCode)
		},
	},
	{
		key: "protocol.card_unversioned", without: "with a url", with: "without a url",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			if strings.Contains(string(fetch(t, r.url+"/.well-known/agent-card.json").body), `"preferredTransport"`) {
				return "with a url"
			}
			return "without a url"
		},
	},
	{
		key: "protocol.ambiguous_result", without: "type", with: "kind type",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			sent := wait(t, r, r.call("tasks/send", v01.params("", "echo:x")))
			a, err := ask(short(t, patience), r.url+"/", request("tasks/get", object{"id": sent.ID}))
			require.NoError(t, err)
			var seen []string
			for _, name := range []string{"kind", "type"} {
				if strings.Contains(string(a.Result), `"`+name+`":"text"`) {
					seen = append(seen, name)
				}
			}
			return strings.Join(seen, " ")
		},
	},
	{
		key: "limits.max_block", with: "working", onlyWhenSwitchedOn: true,
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			params := v03.params("", "hold")
			params["configuration"] = object{"blocking": true}
			return outcome(t, r, "message/send", params, (*result).state)
		},
	},
	{
		key: "agents[].dedupe_message_id", without: "2 tasks", with: "1 tasks",
		look: func(t *testing.T, r *replica) string {
			t.Helper()
			params := v03.params("", "echo:x")
			one, two := r.call("message/send", params), r.call("message/send", params)
			ids := slices.Compact([]string{one.ID, two.ID})
			return fmt.Sprint(len(ids), " tasks")
		},
	},
}

// outcome is what a request led to, or the code of its error.
func outcome(t *testing.T, r *replica, method string, params any, see func(*result) string) string {
	t.Helper()
	a, err := ask(short(t, patience), r.url+"/", request(method, params))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.HTTP)
	if a.Err != nil {
		return fmt.Sprint(a.Err.Code)
	}
	res, err := a.result()
	require.NoError(t, err)
	return see(res)
}

// wait waits for the end of a task.
func wait(t *testing.T, r *replica, sent *result) *result {
	t.Helper()
	return r.untilSettled(sent.ID)
}

// Every switch is there, does nothing by default, and does what it says.
func TestSwitches(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)^\\| `(protocol\\.\\w+)`").FindAllStringSubmatch(string(page), -1) {
		require.True(t, slices.ContainsFunc(probes, func(p probe) bool { return p.key == m[1] }), "nothing looks at %s", m[1])
	}
	db := newDB(t)
	t.Cleanup(db.sound)
	without := start(t, replicaOptions{Name: "without", DB: db.url, Config: settings})
	on := switchedOn + replace(settings, "  - name: demo", "  - name: demo\n    dedupe_message_id: true")
	with := start(t, replicaOptions{Name: "with", DB: db.url, Config: on})
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
