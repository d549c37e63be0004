// Package agent is for Go programs that are agents themselves. Implement Executor, and Holdfast keeps the tasks. This is a
// whole program:
//
//	package main
//
//	import (
//		"context"
//		"strings"
//
//		"github.com/holdfast-a2a/holdfast/agent"
//	)
//
//	type shout struct{}
//
//	// Execute answers a message with its text in capitals.
//	func (shout) Execute(ctx context.Context, run *agent.Run, out agent.Emitter) error {
//		return out.Artifact(ctx, agent.Text("shout", strings.ToUpper(run.Text())))
//	}
//
//	func main() {
//		agent.Main(map[string]agent.Executor{"shout": shout{}})
//	}
//
// Main makes the program holdfast with these agents in it. Serve is for programs with a main function of their own, and Connect for
// workers of a server elsewhere. Package agent/agenttest runs an agent in a test. Package agent/a2asdk runs
// agents of the official Go SDK. The guide, docs/agents/go.md, has more programs.
//
// # What to rely on
//
// Execute runs at least once for each message of a user. If the process dies during a run, another process calls
// Execute again with a higher Attempt. Emitted events stay in the task. So pass Run.IdempotencyKey to services with
// side effects. Give an artifact an ID of its own: emitting it again then replaces it. Keep expensive results with
// Emitter.Checkpoint, and read them back with Run.Checkpoint.
//
// The context ends when the task is canceled, a timeout passes, this process stops, or another process takes the lease.
// Return soon then; later events do not reach the task.
//
// Returning nil completes the task, unless the run has already ended it by asking, failing, rejecting or replying. An
// error fails the task. The client reads the text of a Failure; for any other error it reads only that the agent
// failed. Retryable errors lead to a retry.
package agent
