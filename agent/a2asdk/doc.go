// Package a2asdk runs agents of the official Go SDK (github.com/a2aproject/a2a-go/v2) on Holdfast: Wrap makes an
// agent.Executor of an a2asrv.AgentExecutor. A program is then one line:
//
//	func main() {
//		agent.Main(map[string]agent.Executor{"travel": a2asdk.Wrap(travelAgent{})})
//	}
//
// An AgentExecutor of the SDK's 0.3 line runs with the SDK's own adapter: Wrap(a2av0.NewAgentExecutor(old)), from
// github.com/a2aproject/a2a-go/v2/a2acompat/a2av0.
//
// # What an executor gets
//
// Execute gets the ExecutorContext of the SDK's server: Message, TaskID, ContextID, and StoredTask if the task existed
// before. StoredTask.Status is the state in which the message found the task, in every try, and StoredTask.History ends with
// the message. StoredTask.Metadata is that of the request that created the task, and Metadata that of the request with this
// message. Execute also gets:
//
//   - RelatedTasks, as the SDK's ReferencedTasksLoader loads them: at most 20 tasks that the message refers to, if they
//     belong to the owner and this agent. Each has at most 100 messages and artifacts of together 1 MiB. Those of more than
//     half of that, progress messages, extensions, and descriptions of artifacts are left out.
//   - TaskID and ContextID: the run's TaskKey and ContextKey, in messages and tasks, too, so that memory under them has one caller.
//   - User: Name is the owner of the task, and Attributes["scopes"] are the caller's scopes ([]string). Tenant is the
//     owner's tenant.
//   - ServiceParams: A2A-Extensions, the extensions that the client named and the card has, traceparent and tracestate. Holdfast stores
//     no other headers, because a message may wait and be tried again. CallContextFrom(ctx) has the same user and
//     parameters; the extensions are active. Its Method and Tenant are empty.
//
// The rest of what Holdfast knows is in RunFrom(ctx), such as AcceptedOutputModes and Deadline.
//
// Holdfast may execute a message again, after a crash or a retryable error. RunFrom gives the run's IdempotencyKey for
// services with side effects, and Checkpoint stores what the next try continues from.
//
// # What its events do
//
//   - A Message is a bare reply if the agent is configured with direct_replies and it is the first event of the task.
//     Otherwise it completes the task.
//   - A Task sets the status, and the artifacts that differ from those before. Its history and metadata have no effect:
//     Holdfast has the history.
//   - An artifact with a random ID, as NewArtifactEvent makes it, gets the ID that an earlier try at the message gave to the
//     artifact of the same name and order. So a retry replaces the artifacts that a crash has cut off.
//   - input-required, auth-required, and the states that end a task also end the run: the executor's sequence is stopped.
//     After auth-required, the SDK would go on and wait in the process; here the next message executes the agent again.
//   - Metadata of a status belongs to the event, and clients get it with the status. The SDK's server would also add it to the
//     metadata of the task.
//   - A sequence that ends without such a state completes the task.
//
// An error of the sequence fails the task, and the client does not see its text. An a2a.Error has a Message for the
// client. agent.Retryable, agent.Unavailable and agent.Failure have their own meaning here, too.
//
// # Cancel
//
// When a client cancels the task, the context of Execute ends, and Cancel is called beside it. The task ends as canceled when
// both have returned, or when the agent's cancel_grace is over. A message and metadata of the canceled status are kept. If Cancel completes
// the task, it is completed. An error of Cancel has no effect.
//
// For a task without a run, such as one that waits for input, Cancel is called after the task has ended as canceled or has
// expired. StoredTask has only the ids and that state, Metadata is that of the request to cancel, and there is no run. Events
// have no effect, and Cancel is called again only after an agent.Retryable error. After a crash, and if another replica had the
// run, Cancel may be called twice.
//
// Cancel is not called when a run times out or the server stops: then only the context ends.
package a2asdk
