package registry_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/registry"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

//go:generate go test -count=1 -run ^TestPageOfErrors$ . -update

var update = flag.Bool("update", false, "rewrite the table of docs/errors.md")

// meanings say to authors of clients what an error of a kind means, and what to do about it.
var meanings = map[task.Kind]string{
	task.Internal: "A fault of the server. Give the operator `errorId`.",
	task.NotFound: "You have no such task or webhook. Check id, agent and credential.",

	task.NotCancelable:        "The task has ended.",
	task.PushUnsupported:      "Webhooks are off here. Stream or poll.",
	task.Unsupported:          "This version or agent lacks the operation.",
	task.StreamingUnsupported: "The card declares no streams. Send, or set a webhook.",
	task.ContentType:          "The card lacks this media type.",
	task.NoExtendedCard:       "There is no extended card.",
	task.ExtensionRequired:    "Name the extension in `A2A-Extensions`.",
	task.Version:              "Use an `A2A-Version` of the card.",
	task.Invalid:              "`message` names the wrong value.",
	task.Terminal:             "The task has ended. Read it, or start a new one.",
	task.Busy:                 "The agent is busy. Send again after its answer.",
	task.Unauthenticated:      "The credential is missing, wrong or expired.",
	task.Forbidden:            "The credential lacks a scope, or the origin is not allowed.",
	task.RateLimited:          "You or the server reached a limit. Retry after `Retry-After`.",
	task.Unavailable:          "The database is away, or memory is full. Retry after `Retry-After`.",
	task.TooLarge:             "Send or request less.",
}

// unsent are the kinds that no client gets: an agent's failure is a failed task, and a lost lease ends a run.
var unsent = []task.Kind{task.BadAgentReply, task.LeaseLost}

// ofBindings are the errors of the bindings themselves, which come before any operation.
var ofBindings = []errorRow{
	{code: -32700, http: "400", meaning: "The JSON is broken."},
	{code: -32601, http: "404, 405", grpc: "`UNIMPLEMENTED`", meaning: "This version lacks the method or path; `Allow` has the verbs."},
	{code: -32600, http: "408, 415", meaning: "The body is no JSON-RPC 2.0, late, or compressed."},
	{code: -32005, http: "406, 415", meaning: "`Content-Type` or `Accept` is not JSON."},
}

// errorRow is a row of the table: what 1.0 says, and where others differ.
type errorRow struct {
	code                        int
	others, http, grpc, meaning string
}

// other returns what a version says if that differs from 1.0.
func other[T comparable](version string, says, newest T) string {
	if says == newest {
		return ""
	}
	return fmt.Sprintf(", %s: %v", version, says)
}

// The table of docs/errors.md is written from the tables of errors of all versions. Its introduction is not.
func TestPageOfErrors(t *testing.T) {
	t.Parallel()
	v10, v03, v01 := registry.ByVersion("1.0").Traits().Faults, registry.ByVersion("0.3").Traits().Faults, registry.ByVersion("0.1").Traits().Faults
	rows := slices.Clone(ofBindings)
	for kind := range task.Kind(task.KindCount) {
		meaning, told := meanings[kind]
		require.NotEqual(t, told, slices.Contains(unsent, kind), "%q needs a meaning", kind)
		if !told {
			continue
		}
		newest, before := v10.Row(kind), v03.Row(kind)
		rows = append(rows, errorRow{
			code:    newest.Code,
			others:  other("0.3", before.Code, newest.Code) + other("0.1", v01.Row(kind).Code, newest.Code),
			http:    fmt.Sprint(newest.HTTP) + other("0.3", before.HTTP, newest.HTTP),
			grpc:    fmt.Sprintf("`%s`", newest.GRPC) + other("0.3", "`"+before.GRPC.String()+"`", "`"+newest.GRPC.String()+"`"),
			meaning: meaning,
		})
	}
	slices.SortStableFunc(rows, func(a, b errorRow) int { return cmp.Compare(b.code, a.code) })
	table := "| code | HTTP | gRPC | meaning, and what to do |\n|---|---|---|---|\n"
	for _, r := range rows {
		table += fmt.Sprintf("| %d%s | %s | %s | %s |\n", r.code, r.others, r.http, r.grpc, r.meaning)
	}
	const page = "../../../../docs/errors.md"
	written, err := os.ReadFile(page)
	require.NoError(t, err)
	introduction, _, found := strings.Cut(string(written), "| code |")
	require.True(t, found, "the page has a table")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(introduction+table), 0o600))
		return
	}
	require.Empty(t, gocmp.Diff(introduction+table, string(written)), "-errors +docs/errors.md; -update writes the table")
}
