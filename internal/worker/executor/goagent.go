package executor

import "github.com/holdfast-a2a/holdfast/internal/task"

// Conversions are those between the types of package agent and the server's, for package agenttest. They are registered here,
// because the public package must not export what only this module can name.
type Conversions[E, M, A any] struct {
	Adapt        func(E) Executor
	ToMessage    func(M) (*task.Message, error)
	ToArtifact   func(A) (task.Artifact, error)
	FromMessage  func(*task.Message) M
	FromArtifact func(*task.Artifact) A
}

var registered any

// Register keeps the conversions of package agent.
func Register[E, M, A any](c Conversions[E, M, A]) { registered = c }

// Registered returns the conversions of package agent, which must be imported.
func Registered[E, M, A any]() Conversions[E, M, A] { return registered.(Conversions[E, M, A]) }
