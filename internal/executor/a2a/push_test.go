package a2a_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/executor/executortest"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// never is longer than any test: a run that relies on notifications does not read without one.
const never = time.Hour

// newPushing starts a polled server that accepts configurations, and a front that asks for notifications.
func newPushing(t *testing.T, opts a2a.Options) (*agent, *a2a.Front) {
	t.Helper()
	opts.Poll = true
	a, e := newAgent(t, opts)
	a.card = strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"pushNotifications":true`, 1)
	a.on("SendMessage", says(working("")))
	a.on("CreateTaskPushNotificationConfig", says(`{"taskId":"up-1","url":"u"}`))
	f := e.(*a2a.Front)
	f.Push(func(id task.ID) (url, token string) { return "https://holdfast.example/" + id.String(), "s3cret" })
	return a, f
}

// begin starts a run whose task works until finish says that it has completed.
func begin(t *testing.T, a *agent, f *a2a.Front, id byte) (out *executortest.Recorder, done <-chan error, finish func()) {
	t.Helper()
	a.forget("GetTask")
	a.on("GetTask", says(taskIn("WORKING", "")))
	run, out := executortest.NewRun("hello"), executortest.NewRecorder()
	run.ID = task.ID{id}
	before := len(a.called("GetTask"))
	done = executortest.Go(t.Context(), f, run, out)
	waittest.Eventually(t, "the run reads its task again", func() error {
		return waittest.Unless(len(a.called("GetTask")) > before+1, "not yet")
	})
	return out, done, func() {
		a.forget("GetTask")
		a.on("GetTask", says(taskIn("COMPLETED", artifact("done"))))
	}
}

// polled runs a task that polls until it has made some reads: the time in which another one would have made about as many.
func polled(t *testing.T, reads int) {
	t.Helper()
	a, e := newAgent(t, a2a.Options{Poll: true})
	a.on("SendMessage", says(working("")))
	for range reads {
		a.on("GetTask", says(taskIn("WORKING", "")))
	}
	a.on("GetTask", says(taskIn("COMPLETED", "")))
	_, err := execute(t, e, executortest.NewRun("hello"))
	require.NoError(t, err)
}

// relying begins a run and notifies it until it reads only after notifications.
func relying(t *testing.T, a *agent, f *a2a.Front, id byte) (out *executortest.Recorder, done <-chan error, finish func()) {
	t.Helper()
	out, done, finish = begin(t, a, f, id)
	f.Notified(task.ID{id})
	waittest.Eventually(t, "the run reads only after notifications", func() error {
		before := len(a.called("GetTask"))
		polled(t, 20)
		after := len(a.called("GetTask"))
		return waittest.Unless(before == after, "%d reads", after-before)
	})
	return out, done, finish
}

func TestNotificationsReplacePolling(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: never})
	out, done, finish := relying(t, a, f, 1)
	const notifications = 20
	first := len(a.called("GetTask"))
	for range notifications {
		before := len(a.called("GetTask"))
		f.Notified(task.ID{1})
		waittest.Eventually(t, "the run reads its task", func() error {
			return waittest.Unless(len(a.called("GetTask")) > before, "%d reads", before)
		})
	}
	require.LessOrEqual(t, len(a.called("GetTask"))-first, notifications+1, "one read for each, and one that was late")
	finish()
	f.Notified(task.ID{1})
	require.NoError(t, executortest.Wait(t, done))
	require.Equal(t, "done", out.Text(t))
	asked := a.called("CreateTaskPushNotificationConfig")
	require.Len(t, asked, 1)
	require.JSONEq(t, `{"taskId":"up-1","id":"holdfast","url":"https://holdfast.example/01000000-0000-0000-0000-000000000000",
		"token":"s3cret","authentication":{"scheme":"Bearer","credentials":"s3cret"}}`, string(asked[0].Params))
}

func TestNotificationsOfOtherTasksWakeNoRun(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: never})
	_, done, finish := relying(t, a, f, 1)
	before := len(a.called("GetTask"))
	f.Notified(task.ID{2})
	polled(t, 20)
	require.Len(t, a.called("GetTask"), before)
	finish()
	f.Notified(task.ID{1})
	require.NoError(t, executortest.Wait(t, done))
	f.Notified(task.ID{1}) // it has no run any more
}

func TestRunsPollUntilANotificationComes(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: never})
	_, done, finish := begin(t, a, f, 1)
	finish()
	require.NoError(t, executortest.Wait(t, done))
	require.Len(t, a.called("CreateTaskPushNotificationConfig"), 1)
}

// The agent tells nobody what happened before it was asked for notifications.
func TestNewsBeforeTheAgentHasAgreedIsRead(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: never})
	_, done, finish := relying(t, a, f, 1)
	a.forget("GetTask")
	a.on("GetTask", says(taskIn("WORKING", "")))
	a.on("GetTask", says(taskIn("COMPLETED", "")))
	run := executortest.NewRun("hello")
	_, err := execute(t, f, run)
	require.NoError(t, err)
	finish()
	f.Notified(task.ID{1})
	require.NoError(t, executortest.Wait(t, done))
}

func TestALostNotificationBringsPollingBack(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: time.Second})
	_, done, finish := begin(t, a, f, 1)
	f.Notified(task.ID{1})
	waittest.Eventually(t, "the run relies on notifications", func() error {
		before := len(a.called("GetTask"))
		polled(t, 5)
		return waittest.Unless(len(a.called("GetTask")) <= before+1, "it polls")
	})
	finish()
	require.NoError(t, executortest.Wait(t, done), "the run reads without a notification, too")

	_, done, finish = begin(t, a, f, 2)
	waittest.Eventually(t, "the next run polls", func() error {
		before := len(a.called("GetTask"))
		polled(t, 50)
		reads := len(a.called("GetTask")) - before
		return waittest.Unless(reads > 10, "%d reads", reads)
	})
	finish()
	require.NoError(t, executortest.Wait(t, done))
}

func TestAgentsThatRefuseNotificationsArePolled(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	a, f := newPushing(t, a2a.Options{PushInterval: never, Log: slog.New(slog.NewTextHandler(&log, nil))})
	a.forget("CreateTaskPushNotificationConfig")
	a.on("CreateTaskPushNotificationConfig", fails(-32003, "no push to holdfast.example with s3cret"))
	for id := range byte(3) {
		_, done, finish := begin(t, a, f, id)
		f.Notified(task.ID{id}) // a forged one
		finish()
		require.NoError(t, executortest.Wait(t, done))
	}
	require.Len(t, a.called("CreateTaskPushNotificationConfig"), 3)
	require.Equal(t, 1, strings.Count(log.String(), "accepts no push notifications"), log.String())
	require.Contains(t, log.String(), "no push to holdfast.example with [redacted]")
	require.NotContains(t, log.String(), "s3cret")
}

func TestOnlyAgentsWithTheCapabilityAreAsked(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(a *agent, f *a2a.Front){
		"no capability": func(a *agent, _ *a2a.Front) { a.card = streamingCard },
		"no setting":    func(_ *agent, f *a2a.Front) { f.Push(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, f := newPushing(t, a2a.Options{})
			prepare(a, f)
			_, done, finish := begin(t, a, f, 1)
			finish()
			require.NoError(t, executortest.Wait(t, done))
			require.Empty(t, a.called("CreateTaskPushNotificationConfig"))
		})
	}
	a, _ := newPushing(t, a2a.Options{})
	_, e := newAgent(t, a2a.Options{URL: a.url + "/rpc", Version: "1.0", Poll: true})
	f := e.(*a2a.Front)
	f.Push(func(task.ID) (url, token string) { return "https://holdfast.example", "s3cret" })
	_, done, finish := begin(t, a, f, 1)
	finish()
	require.NoError(t, executortest.Wait(t, done))
	require.Len(t, a.called("CreateTaskPushNotificationConfig"), 1, "without a card, the setting says it")
}

func TestStreamsNeedNoNotifications(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut %t", cut), func(t *testing.T) {
			t.Parallel()
			a, e := newAgent(t, a2a.Options{})
			a.card = strings.Replace(streamingCard, `"streaming":true`, `"streaming":true,"pushNotifications":true`, 1)
			a.on("CreateTaskPushNotificationConfig", says(`{}`))
			f := e.(*a2a.Front)
			f.Push(func(task.ID) (url, token string) { return "https://holdfast.example", "s3cret" })
			if cut {
				a.on("SendStreamingMessage", streams(working(""), "cut"))
			} else {
				a.on("SendStreamingMessage", streams(working(""), status("COMPLETED", "")))
			}
			a.on("GetTask", says(taskIn("WORKING", "")))
			a.on("GetTask", says(taskIn("COMPLETED", "")))
			_, err := execute(t, f, executortest.NewRun("hello"))
			require.NoError(t, err)
			require.Len(t, a.called("CreateTaskPushNotificationConfig"), map[bool]int{true: 1}[cut])
		})
	}
}

// However many notifications come, a run reads its task one after the other, with pauses.
func TestManyNotificationsAreOne(t *testing.T) {
	t.Parallel()
	a, f := newPushing(t, a2a.Options{PushInterval: never})
	_, done, finish := relying(t, a, f, 1)
	before := len(a.called("GetTask"))
	for range 10_000 {
		f.Notified(task.ID{1})
	}
	polled(t, 20)
	require.Less(t, len(a.called("GetTask")), before+100)
	finish()
	f.Notified(task.ID{1})
	require.NoError(t, executortest.Wait(t, done))
}
