package checks_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/cmd/torture/checks"
)

// test runs checks. Server and checks are in a bubble, so nothing of what they wait for takes time.
func test(t *testing.T, f *fake, names ...string) *checks.Report {
	t.Helper()
	report, err := checks.Run(t.Context(), checks.Options{
		URLs: f.urls(), Scripts: checks.Languages[0], Seed: 1, Checks: names, Load: 4,
		Header: http.Header{"Authorization": {"Bearer owner"}}, Other: http.Header{"Authorization": {"Bearer other"}},
		Faults: []checks.Fault{{Kill: f.kill, Start: f.start}}, HookListen: "in memory",
	}.Over(&f.network))
	require.NoError(t, err)
	return report
}

func inBubble(t *testing.T, name string, do func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, do)
	})
}

func texts(r *checks.Result) string {
	var all []string
	for _, v := range r.Violations {
		all = append(all, v.Text)
	}
	return strings.Join(all, "\n")
}

// A check that never fails proves nothing: each fault of a server is found, by the check that looks for it.
func TestChecksFindFaults(t *testing.T) {
	t.Parallel()
	const plain = true
	for _, c := range []struct {
		fault, check string
		plain        bool // of a server without extensions
		says         string
	}{
		{"a restart loses a task", "acknowledged-tasks", false, "is lost"},
		{"a restart loses a task", "acknowledged-tasks", plain, "is lost"},
		{"a restart loses a result", "acknowledged-tasks", false, "or other ones"},
		{"a restart loses a result", "acknowledged-tasks", plain, "no position of the log from there on has the state completed"},
		{"a restart forgets a question", "acknowledged-tasks", false, "is still working"},
		{"work dies with its process", "interrupted-work", false, "is still working"},
		{"work dies with its process", "interrupted-work", plain, "is still working"},
		{"a resumed stream misses an event", "resumed-streams", false, "the log continues with"},
		{"an event is doubled", "streams", plain, "and should be"},
		{"an event is doubled", "streams", false, "and should be"},
		{"two events are swapped", "streams", plain, "and should be"},
		{"two events are swapped", "streams", false, "and should be"},
		{"a subscription misses an event", "streams", plain, "the log continues with"},
		{"streams do not begin with the task", "streams", plain, "does not begin with the task"},
		{"streams stay open", "streams", plain, "open for 5s after its end"},
		{"an address shows old states", "streams", plain, "was told that it is working"},
		{"a subscription misses an event", "resubscription", plain, "the log continues with"},
		{"a resumed stream misses an event", "resubscription", false, "the log continues with"},
		{"subscriptions to ended tasks are accepted", "resubscription", false, "was accepted; §3.1.6"},
		{"a cancel overwrites a result", "races", false, "ended as"},
		{"an address shows old states", "races", false, "is working after a cancel"},
		{"a repetition at the same time is a new message", "repeats", false, "one message, sent 5 times"},
		{"cancels may not be repeated", "repeats", false, "cancel a task again"},
		{"pages are counted by offset", "lists", false, "more than once"},
		{"a page lacks a task", "lists", false, "that existed before its first page"},
		{"an answer overwrites older ones", "conversations", false, "lacks the artifact of message 2 after message 4"},
		{"webhooks lack the first status", "webhooks", false, "none says working"},
		{"notifications get one attempt", "webhook-retries", false, "and not the end of the task"},
		{"a notification is sent twice", "webhook-retries", false, "the log continues with"},
		{"a notification is sent twice", "webhook-retries", plain, "the log continues with"},
		{"of statuses one is sent twice", "webhook-retries", false, "after its end"},
		{"of statuses one is sent twice", "webhook-retries", plain, "after its end"},
		{"notifications are swapped", "webhook-retries", false, "the log continues with"},
		{"another caller reads a task", "owners", false, "another caller could read task"},
		{"another caller learns that a task exists", "owners", false, "and about no task"},
		{"a version shows other artifacts", "versions", false, "0 others in A2A 0.3 over JSONRPC"},
		{"a reader that does not read stops the work", "slow-readers", false, "nobody reads its stream"},
		{"events cost what the task has", "growth", false, "times as long as the first"},
		{"wrong requests are internal errors", "hostile-input", false, "half a document: HTTP 500"},
		{"wrong params are internal errors", "hostile-input", false, "an internal error"},
	} {
		name := c.check + "/" + c.fault
		if c.plain {
			name += "/plain"
		}
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t, c.fault)
			f.plain = c.plain
			r := test(t, f, c.check).Results[0]
			require.Equal(t, checks.Violated, r.Verdict, r.Reason)
			require.Contains(t, texts(r), c.says)
			var evidence int
			for _, v := range r.Violations {
				evidence += len(v.Evidence)
				for i := range v.Evidence {
					require.NotContains(t, v.Evidence[i].String(), "Bearer owner")
				}
			}
			require.Positive(t, evidence, "the wire shows it")
			if c.fault == "a subscription misses an event" {
				require.True(t, slices.ContainsFunc(r.Violations[0].Evidence, func(e checks.Exchange) bool { return strings.Contains(e.Request, "SubscribeToTask") }), "the stream itself")
			}
		})
	}
}

// A server that keeps its promises passes all checks.
func TestChecksPass(t *testing.T) {
	t.Parallel()
	for name, skipped := range map[string][]string{"extended": nil, "plain": {"resumed-streams", "repeats"}} {
		inBubble(t, name, func(t *testing.T) {
			f := newFake(t, "")
			f.plain = name == "plain"
			report := test(t, f)
			require.Len(t, report.Results, len(checks.Names()))
			var not []string
			for _, r := range report.Results {
				if r.Verdict == checks.NotApplicable {
					not = append(not, r.Check)
					continue
				}
				require.Equal(t, checks.Pass, r.Verdict, "%s: %s %s", r.Check, r.Reason, texts(r))
			}
			require.ElementsMatch(t, skipped, not)
		})
	}
}

// A2A lets a server forget canceled tasks.
func TestPurgedTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, "")
		f.purges = true
		for _, r := range test(t, f, "races", "repeats").Results {
			require.Equal(t, checks.Pass, r.Verdict, texts(r))
		}
	})
}

// A check that cannot be made does not pass.
func TestChecksThatDoNotApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, "")
		one := checks.Options{URLs: f.urls()[:1], Scripts: checks.Languages[0], Load: 1}.Over(&f.network)
		one.Checks = []string{"acknowledged-tasks", "resumed-streams", "webhooks", "webhook-retries", "owners"}
		report, err := checks.Run(t.Context(), one)
		require.NoError(t, err)
		for _, r := range report.Results {
			require.Equal(t, checks.NotApplicable, r.Verdict, r.Check)
			require.NotEmpty(t, r.Reason)
		}
		one.Checks = []string{"acknowledged-tasks"}
		one.Faults = []checks.Fault{{Kill: f.kill, Start: func(context.Context) error { return nil }}}
		report, err = checks.Run(t.Context(), one)
		require.NoError(t, err)
		require.Equal(t, checks.Unknown, report.Results[0].Verdict)
		require.Contains(t, report.Results[0].Reason, "does not answer")
		_, err = checks.Run(t.Context(), one)
		require.Error(t, err, "nothing can be tested while it is down")
	})
}

func TestReports(t *testing.T) {
	t.Parallel()
	var report *checks.Report
	synctest.Test(t, func(t *testing.T) {
		report = test(t, newFake(t, "another caller reads a task"), "owners", "versions", "lists")
	})
	var text, page, suite bytes.Buffer
	require.NoError(t, report.WriteJSON(&text))
	var back checks.Report
	require.NoError(t, json.Unmarshal(text.Bytes(), &back))
	require.Equal(t, report.Results[1].Violations[0].Text, back.Results[1].Violations[0].Text)
	require.NoError(t, report.WriteMarkdown(&page))
	require.Contains(t, page.String(), "| owners | violation | §3.3.2, §13.1: To another caller")
	require.Contains(t, page.String(), "  > POST "+report.Targets[0].URL)
	require.NoError(t, report.WriteJUnit(&suite))
	var read struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Name    string  `xml:"name,attr"`
			Failure *string `xml:"failure"`
		} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(suite.Bytes(), &read))
	require.Equal(t, 3, read.Tests)
	require.Equal(t, 1, read.Failures)
	require.Equal(t, "owners", read.Cases[1].Name)
	require.Contains(t, *read.Cases[1].Failure, "another caller could read task")
}
