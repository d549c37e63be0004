// Package agenthook gives the packages below agent what agent does not export: how its types become those of the server.
// Package agent sets the variables; packages here cannot import it to name their types.
package agenthook

// The functions of package agent.
var (
	Adapt        any // func(agent.Executor) executor.Executor
	FromMessage  any // func(*task.Message) agent.Message
	ToMessage    any // func(agent.Message) (*task.Message, error)
	FromArtifact any // func(*task.Artifact) agent.Artifact
	ToArtifact   any // func(agent.Artifact) (task.Artifact, error)
)
