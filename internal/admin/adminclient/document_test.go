package adminclient_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin/adminclient"
	"github.com/holdfast-a2a/holdfast/internal/admin/doctor"
	"github.com/holdfast-a2a/holdfast/internal/admin/shown"
	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
)

// Every member that the client reads is in the document, with its type; and the client knows those that are required.
func TestTypesAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	document := openapitest.Document{File: "admin-api.yaml", Exact: true}
	const id = "0199a3c1-5b7e-7c3a-9a51-2f6f0c1d2e3f"
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := adminclient.Task{
		ID: id, TaskID: "x", Agent: "a", Tenant: "t", Owner: "o", ContextID: "c", Dialect: "1.0", State: "failed", StatusAt: now, CreatedAt: now,
		LastSeq: 1, Direct: true, TraceID: "0123456789abcdef0123456789abcdef", RetriedAs: id,
	}
	raw := json.RawMessage(`{"a":1}`)
	event := adminclient.Event{Seq: 1, Kind: "status", At: now, State: "failed", ArtifactID: "a", Append: true, Last: true, Payload: raw}
	call := shown.Call{ID: "c", Agent: "a", Task: id, Result: "failed", Error: "e", CalledAt: now}
	push := shown.Push{ID: id, State: "idle", CreatedAt: now, DueSince: now, DueAt: now, Failures: 1, FailingSince: now, LastError: "e", DisabledAt: now, DisabledFor: "d"}
	for schema, value := range map[string]any{
		"task":       one,
		"taskDetail": adminclient.TaskDetail{Task: one, Metadata: raw},
		"tasks":      adminclient.TasksPage{Tasks: []adminclient.Task{one}, Next: id},
		"log":        adminclient.LogPage{Events: []adminclient.Event{event}, Next: 1},
		"lineage":    adminclient.Lineage{CalledBy: id, CallID: "c", Calls: []shown.Call{call}},
		"webhooks":   adminclient.WebhooksPage{Webhooks: []shown.Push{push}, Next: "n"},
		"attempts":   adminclient.Attempts{Attempts: []shown.Attempt{{ConfigID: "c", At: now, Class: "server", Status: 500, Error: "e", Worker: "w"}}},
		"acted":      adminclient.Acted{Outcome: "purged", NewTask: id, ExportedLines: 1},
		"plan":       adminclient.Plan{Steps: []shown.Step{{What: "w", How: "h", From: now, To: now, Agent: "a"}}},
		"findings":   adminclient.Findings{Status: doctor.OK, Checks: []doctor.Finding{{Check: "c", Status: doctor.Warn, Detail: "d", Advice: "a"}}},
		"agents": adminclient.Agents{Agents: []adminclient.Agent{{
			Name: "a", Default: true, Kind: "worker", Concurrency: 1, MaxAttempts: 1, Away: &adminclient.Away{Since: now, LastAt: now, Error: "e"},
			Queue: &adminclient.Depths{Waiting: 1}, Workers: new(int), Signature: &adminclient.Signature{Status: "verified", KeyID: "k", Algorithm: "ES256", Detail: "d"},
		}}},
		"agentDetail": adminclient.AgentDetail{Agent: adminclient.Agent{Name: "a", Kind: "http"}, Card: raw},
		"audit":       adminclient.AuditPage{Rows: []adminclient.AuditRow{{At: now, Chain: 1, N: 1, Login: "l", Entries: json.RawMessage(`[]`)}}, Next: "n"},
		"keys":        adminclient.KeysPage{Keys: []shown.Key{{ID: "k", Scopes: []string{}, State: "valid", CreatedAt: now}}, Next: "n"},
	} {
		b, err := json.Marshal(value)
		require.NoError(t, err)
		require.NoError(t, document.CheckAs(schema, b), "%s: %s", schema, b)
	}
}
