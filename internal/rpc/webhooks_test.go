package rpc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/hub"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpctest"
	"github.com/holdfast-a2a/holdfast/internal/signal"
	"github.com/holdfast-a2a/holdfast/internal/store"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

// api is the public server with everything behind it except workers: tasks stay submitted.
type api struct {
	*httptest.Server
	t *testing.T
}

func anyURL(context.Context, string) (host string, err error) { return "hook.example:443", nil }

func webhooks(t *testing.T) *api {
	t.Helper()
	var bus signal.Bus
	s, err := store.Open(t.Context(), store.Options{URL: storetest.New(t).URL, APIConns: 2, RowSecurity: true, Listener: &bus})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(context.Background()) })
	h := hub.New(hub.Options{Store: s, Signals: &bus})
	a := &api{httptest.NewServer(newServer("", dispatch.Views(engine.New(engine.Options{
		Store: engine.As(s), Hub: h, Agents: []engine.Agent{{Name: "demo"}, {Name: "other"}}, Push: &engine.Push{Check: anyURL}, MaxBlock: time.Millisecond,
	}).As))), t}
	t.Cleanup(a.Close)
	return a
}

func (a *api) do(verb, path, body string) (status int, answer string) {
	a.t.Helper()
	r := rpctest.Do(a.t, a.Server, verb, path, body, "Content-Type", "application/json")
	return r.StatusCode, string(r.Content)
}

// call makes a JSON-RPC call, and returns its result or error in one line.
func (a *api) call(method, params string) string {
	a.t.Helper()
	_, answer := a.do("POST", "/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	var reply struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	require.NoError(a.t, json.Unmarshal([]byte(answer), &reply), answer)
	if reply.Error != nil {
		return fmt.Sprintf("%d %s", reply.Error.Code, reply.Error.Message)
	}
	var line bytes.Buffer
	require.NoError(a.t, json.Compact(&line, reply.Result))
	return line.String()
}

// send creates a task and returns its id.
func (a *api) send(method, params string) string {
	a.t.Helper()
	result := a.call(method, params)
	var sent struct {
		ID   string
		Task struct{ ID string }
	}
	require.NoError(a.t, json.Unmarshal([]byte(result), &sent), result)
	return sent.ID + sent.Task.ID
}

const (
	send03 = `{"message":{"messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]},"configuration":{"blocking":false%s}}`
	send10 = `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true%s}}`
)

// Every version reads a configuration correctly, whichever version set it. No version shows its
// secrets.
func TestWebhooksInEveryVersion(t *testing.T) {
	t.Parallel()
	a := webhooks(t)
	const (
		auth03 = `"token":"secret","authentication":{"schemes":["Bearer","Basic"],"credentials":"secret"}`
		auth10 = `"token":"secret","authentication":{"scheme":"Bearer","credentials":"secret"}`
	)
	set := map[string]func(id, url string) string{
		"0.1": func(id, url string) string {
			return a.call("tasks/pushNotification/set", `{"id":"`+id+`","pushNotificationConfig":{"url":"`+url+`",`+auth03+`}}`)
		},
		"0.3": func(id, url string) string {
			return a.call("tasks/pushNotificationConfig/set", `{"taskId":"`+id+`","pushNotificationConfig":{"url":"`+url+`",`+auth03+`}}`)
		},
		"1.0": func(id, url string) string {
			return a.call("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"`+id+`","url":"`+url+`",`+auth10+`}`)
		},
		"0.3 over HTTP": func(id, url string) string {
			status, answer := a.do("POST", "/v1/tasks/"+id+"/pushNotificationConfigs",
				`{"parent":"tasks/x","config":{"name":"tasks/x","pushNotificationConfig":{"url":"`+url+`",`+auth03+`}}}`)
			require.Equal(t, http.StatusOK, status, answer)
			return answer
		},
		"1.0 over HTTP": func(id, url string) string {
			status, answer := a.do("POST", "/tasks/"+id+"/pushNotificationConfigs", `{"taskId":"x","id":"`+id+`","url":"`+url+`",`+auth10+`}`)
			require.Equal(t, http.StatusOK, status, answer)
			return answer
		},
	}
	for version, do := range set {
		id := a.send("message/send", fmt.Sprintf(send03, ""))
		url := "https://" + strings.ReplaceAll(version, " ", "-") + ".example"
		auth, more := `,"authentication":{"schemes":["Bearer","Basic"]}`, `,"authentication":{"scheme":"Bearer"}`
		if strings.HasPrefix(version, "1.0") {
			auth = `,"authentication":{"schemes":["Bearer"]}`
		}
		name := "tasks/" + id + "/pushNotificationConfigs/" + id
		shapes := map[string]string{
			"0.1":           `{"id":"` + id + `","pushNotificationConfig":{"url":"` + url + `"` + auth + `}}`,
			"0.3":           `{"taskId":"` + id + `","pushNotificationConfig":{"url":"` + url + `","id":"` + id + `"` + auth + `}}`,
			"1.0":           `{"taskId":"` + id + `","id":"` + id + `","url":"` + url + `"` + more + `}`,
			"0.3 over HTTP": `{"name":"` + name + `","pushNotificationConfig":{"url":"` + url + `","id":"` + id + `"` + auth + `}}`,
		}
		shapes["1.0 over HTTP"] = shapes["1.0"]
		for range 2 { // the second one replaces the first
			require.Equal(t, shapes[version], do(id, url), version)
		}
		require.Equal(t, shapes["0.1"], a.call("tasks/pushNotification/get", `{"id":"`+id+`"}`), version)
		require.Equal(t, shapes["0.3"], a.call("tasks/pushNotificationConfig/get", `{"id":"`+id+`"}`), version)
		require.Equal(t, shapes["0.3"], a.call("tasks/pushNotificationConfig/get", `{"id":"`+id+`","pushNotificationConfigId":"`+id+`"}`), version)
		require.Equal(t, "["+shapes["0.3"]+"]", a.call("tasks/pushNotificationConfig/list", `{"id":"`+id+`"}`), version)
		require.Equal(t, shapes["1.0"], a.call("GetTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"`+id+`"}`), version)
		require.Equal(t, `{"configs":[`+shapes["1.0"]+`],"nextPageToken":""}`, a.call("ListTaskPushNotificationConfigs", `{"taskId":"`+id+`"}`), version)
		for path, want := range map[string]string{
			"/v1/tasks/" + id + "/pushNotificationConfigs/" + id: shapes["0.3 over HTTP"],
			"/v1/tasks/" + id + "/pushNotificationConfigs":       `{"configs":[` + shapes["0.3 over HTTP"] + `]}`,
			"/tasks/" + id + "/pushNotificationConfigs/" + id:    shapes["1.0"],
			"/tasks/" + id + "/pushNotificationConfigs":          `{"configs":[` + shapes["1.0"] + `],"nextPageToken":""}`,
		} {
			status, answer := a.do("GET", path, "")
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, want, answer, "%s: %s", version, path)
		}
	}
}

func TestDeleteWebhookInEveryVersion(t *testing.T) {
	t.Parallel()
	a := webhooks(t)
	id := a.send("SendMessage", fmt.Sprintf(send10, `,"taskPushNotificationConfig":{"url":"https://hook.example","token":"secret"}`))
	list := func() string { return a.call("tasks/pushNotificationConfig/list", `{"id":"`+id+`"}`) }
	set := func() {
		a.call("tasks/pushNotification/set", `{"id":"`+id+`","pushNotificationConfig":{"url":"https://hook.example"}}`)
		require.Contains(t, list(), id)
	}
	require.Contains(t, list(), `"id":"`+id+`"`, "a configuration that comes with the message is the default one")
	require.Equal(t, `{"id":"`+id+`","pushNotificationConfig":null}`, a.call("tasks/pushNotification/set", `{"id":"`+id+`","pushNotificationConfig":null}`))
	require.Equal(t, "[]", list())
	require.Equal(t, `{"id":"`+id+`","pushNotificationConfig":null}`, a.call("tasks/pushNotification/get", `{"id":"`+id+`"}`))
	require.Equal(t, "-32001 Task not found: the task has no push notification configuration", a.call("tasks/pushNotificationConfig/get", `{"id":"`+id+`"}`))
	require.Equal(t, "-32001 Task not found: the task has no push notification configuration with this id", a.call("GetTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"c"}`))
	for range 2 {
		set()
		for range 2 { // also if it no longer exists
			require.Equal(t, "null", a.call("tasks/pushNotificationConfig/delete", `{"id":"`+id+`","pushNotificationConfigId":"`+id+`"}`))
			require.Equal(t, "[]", list())
		}
		set()
		require.Equal(t, "{}", a.call("DeleteTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"`+id+`"}`))
		require.Equal(t, "[]", list())
		for _, base := range []string{"/v1", ""} {
			set()
			status, answer := a.do("DELETE", base+"/tasks/"+id+"/pushNotificationConfigs/"+id, "")
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "{}", answer)
			require.Equal(t, "[]", list())
		}
	}
	// Configurations of 1.0 without ids are separate ones.
	for range 2 {
		require.Contains(t, a.call("CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"https://hook.example"}`), `"url"`)
	}
	require.Equal(t, 2, strings.Count(list(), `"url"`))
	require.Contains(t, a.call("tasks/pushNotification/get", `{"id":"`+id+`"}`), "https://hook.example", "the oldest")

	// Clients choose the ids.
	odd, config := "a b?c%", "c/pushNotificationConfigs/d e"
	sent := a.call("tasks/send", `{"id":"`+odd+`","message":{"role":"user","parts":[{"type":"text","text":"x"}]},"pushNotification":{"url":"https://hook.example"}}`)
	require.Contains(t, sent, odd)
	path := "/tasks/" + url.PathEscape(odd) + "/pushNotificationConfigs"
	status, answer := a.do("POST", path, `{"id":"`+config+`","url":"https://hook.example"}`)
	require.Equal(t, http.StatusOK, status, answer)
	for _, base := range []string{"", "/v1"} {
		for _, id := range []string{odd, config} {
			status, answer := a.do("GET", base+path+"/"+url.PathEscape(id), "")
			require.Equal(t, http.StatusOK, status, answer)
			require.Contains(t, answer, `"id":"`+id+`"`)
		}
	}
	require.Contains(t, a.call("tasks/pushNotification/get", `{"id":"`+odd+`"}`), "https://hook.example")
}
