// Package fronts runs Holdfast in front of other A2A servers.
package fronts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func TestMain(m *testing.M) {
	clustertest.Main(m)
}

// inFront is the configuration of an agent in front of another server.
func inFront(name, settings string) string {
	return fmt.Sprintf("\n  - {name: %s, executor: {kind: a2a, a2a: {%s}}, limits: {backoff: 100ms, cancel_grace: 5s, max_attempts: 100}}\n",
		name, settings)
}

// text is the text of a task's only artifact.
func text(r *a2atest.Result) string {
	var b strings.Builder
	for _, a := range r.Artifacts {
		b.WriteString(a2atest.Text(a.Parts))
	}
	return b.String()
}
