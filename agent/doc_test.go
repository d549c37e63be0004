package agent_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The package's documentation shows the program of examples/go, which the tests build and run.
func TestDocumentationHasProgram(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	program, err := os.ReadFile("../examples/go/main.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(program), "\n") // without the package comment
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimRight("//\t"+strings.TrimSuffix(line, "\n"), "\t"))
	}
	require.Contains(t, string(doc), strings.Join(lines, "\n"))
}
