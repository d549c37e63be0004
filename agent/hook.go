package agent

import "github.com/holdfast-a2a/holdfast/internal/agenthook"

func init() {
	agenthook.Adapt, agenthook.FromMessage, agenthook.ToMessage, agenthook.FromArtifact = adapt, fromMessage, toMessage, fromArtifact
	agenthook.ToArtifact = toArtifact
}
