package a2a_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/executortest"
)

// newPushing starts a polled server that accepts configurations, and a front that asks for notifications.
func newPushing(t *testing.T, opts a2a.Options) (*agent, *a2a.Front) {
	t.Helper()
	opts.Poll = true
	a, f := newAgent(t, opts)
	a.card = strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"pushNotifications":true`, 1)
	a.on("SendMessage", says(working("")))
	a.on("CreateTaskPushNotificationConfig", says(`{"taskId":"up-1","url":"u"}`))
	f.Push(func(id task.ID) (url, token string) { return "https://holdfast.example/" + id.String(), "s3cret" })
	return a, f
}

// begin starts a run in a bubble, whose task works until finish says that it has completed.
func begin(t *testing.T, a *agent, f *a2a.Front, id byte) (out *executortest.Recorder, done <-chan error, finish func()) {
	t.Helper()
	a.forget("GetTask")
	a.on("GetTask", says(taskIn("WORKING", "")))
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	run.ID = task.ID{id}
	before := len(a.called("GetTask"))
	done = executortest.Go(t.Context(), f, run, out)
	waittest.Advance(time.Second)
	require.Greater(t, len(a.called("GetTask")), before+10, "it polls")
	return out, done, func() {
		a.forget("GetTask")
		a.on("GetTask", says(taskIn("COMPLETED", artifact("done"))))
	}
}

// relying begins a run and notifies it, so that it reads only after notifications.
func relying(t *testing.T, a *agent, f *a2a.Front, id byte) (out *executortest.Recorder, done <-chan error, finish func()) {
	t.Helper()
	out, done, finish = begin(t, a, f, id)
	f.Notified(task.ID{id})
	waittest.Advance(time.Second)
	return out, done, finish
}

func TestNotificationsReplacePolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, f := newPushing(t, a2a.Options{PushInterval: never})
		out, done, finish := relying(t, a, f, 1)
		reads := len(a.called("GetTask"))
		for of, news := range map[byte]int{1: 1, 2: 0} { // task 2 has no run
			f.Notified(task.ID{of})
			waittest.Advance(time.Minute)
			reads += news
			require.Len(t, a.called("GetTask"), reads, of)
		}
		for range 1000 {
			f.Notified(task.ID{1})
		}
		waittest.Advance(time.Minute)
		require.LessOrEqual(t, len(a.called("GetTask")), reads+2, "many are one, and one that came during the read")
		finish()
		f.Notified(task.ID{1})
		require.NoError(t, executortest.Wait(t, done))
		require.Equal(t, "done", out.Text(t))
		f.Notified(task.ID{1}) // it has no run any more
		asked := a.called("CreateTaskPushNotificationConfig")
		require.Len(t, asked, 1)
		require.JSONEq(t, `{"taskId":"up-1","id":"holdfast","url":"https://holdfast.example/01000000-0000-0000-0000-000000000000",
			"token":"s3cret","authentication":{"scheme":"Bearer","credentials":"s3cret"}}`, string(asked[0].Params))
	})
}

// The agent tells nobody what happened before it was asked for notifications.
func TestNewsBeforeTheAgentHasAgreedIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, f := newPushing(t, a2a.Options{PushInterval: never})
		_, done, finish := relying(t, a, f, 1)
		a.forget("GetTask")
		a.on("GetTask", says(taskIn("WORKING", "")))
		a.on("GetTask", says(taskIn("COMPLETED", "")))
		second := executortest.Go(t.Context(), f, executortest.NewRun("hello"), executortest.NewRecorder())
		waittest.Advance(time.Second)
		require.Len(t, second, 1)
		require.NoError(t, <-second)
		finish()
		f.Notified(task.ID{1})
		require.NoError(t, executortest.Wait(t, done))
	})
}

func TestALostNotificationBringsPollingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, f := newPushing(t, a2a.Options{PushInterval: time.Minute})
		_, done, finish := relying(t, a, f, 1)
		finish()
		waittest.Advance(30 * time.Second)
		require.Empty(t, done)
		waittest.Advance(time.Minute)
		require.Len(t, done, 1, "the run reads without a notification, too")
		require.NoError(t, <-done)
		_, done, finish = begin(t, a, f, 2) // it polls
		finish()
		require.NoError(t, executortest.Wait(t, done))
	})
}

func TestAgentsThatRefuseNotificationsArePolled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a, f := newPushing(t, a2a.Options{PushInterval: never, Log: slog.New(slog.NewTextHandler(&log, nil))})
		a.forget("CreateTaskPushNotificationConfig")
		a.on("CreateTaskPushNotificationConfig", fails(-32003, "no push to holdfast.example with s3cret"))
		for id := range byte(3) {
			_, done, finish := relying(t, a, f, id) // the notification is forged
			finish()
			waittest.Advance(time.Second)
			require.Len(t, done, 1)
			require.NoError(t, <-done)
		}
		require.Len(t, a.called("CreateTaskPushNotificationConfig"), 3)
		require.Equal(t, 1, strings.Count(log.String(), "accepts no push notifications"), log.String())
		require.Contains(t, log.String(), "no push to holdfast.example with [redacted]")
		require.NotContains(t, log.String(), "s3cret")
	})
}

func TestOnlyAgentsWithTheCapabilityAreAsked(t *testing.T) {
	t.Parallel()
	for name, asked := range map[string]int{"no capability": 0, "no setting": 0, "no card": 1} { // without a card, the setting says it
		synctest.Test(t, func(t *testing.T) {
			a, f := newPushing(t, a2a.Options{})
			switch name {
			case "no capability":
				a.card = streamingCard
			case "no setting":
				f.Push(nil)
			case "no card":
				f = a.front(a2a.Options{URL: a.url + "/rpc", Version: "1.0", Poll: true, PollInterval: 20 * time.Millisecond})
				f.Push(func(task.ID) (url, token string) { return "https://holdfast.example", "s3cret" })
			}
			_, done, finish := begin(t, a, f, 1)
			finish()
			require.NoError(t, executortest.Wait(t, done))
			require.Len(t, a.called("CreateTaskPushNotificationConfig"), asked, name)
		})
	}
}

func TestStreamsNeedNoNotifications(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut %t", cut), func(t *testing.T) {
			t.Parallel()
			a, f := newAgent(t, a2a.Options{})
			a.card = strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"pushNotifications":true`, 1)
			a.on("CreateTaskPushNotificationConfig", says(`{}`))
			f.Push(func(task.ID) (url, token string) { return "https://holdfast.example", "s3cret" })
			if cut {
				a.on("SendStreamingMessage", streams(working(""), "cut"))
			} else {
				a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
			}
			a.on("GetTask", says(taskIn("WORKING", "")))
			a.on("GetTask", says(taskIn("COMPLETED", "")))
			completes(t, f, executortest.NewRun("hello"))
			require.Len(t, a.called("CreateTaskPushNotificationConfig"), map[bool]int{true: 1}[cut])
		})
	}
}
