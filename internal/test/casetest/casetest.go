// Package casetest reads the cases of tables that are too long for a test's code.
package casetest

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Case is an input, and what is said of it.
type Case struct {
	In   string
	Want string // its lines, without their indentation
	Line int    // of the file
}

// Read reads the cases of a file: the lines of an input, and behind them indented ones with what is wanted. A line that begins with # is a
// comment.
func Read(t testing.TB, file string) (cases []Case) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	line, wanted := 0, true
	for content := range strings.Lines(string(text)) {
		line++
		content = strings.TrimSuffix(content, "\n")
		want, indented := strings.CutPrefix(content, "\t")
		switch {
		case strings.HasPrefix(content, "#"):
		case indented:
			require.NotEmpty(t, cases, "%s begins with a line that is wanted of nothing", file)
			add(&cases[len(cases)-1].Want, want)
			wanted = true
		default:
			if wanted {
				cases = append(cases, Case{Line: line})
			}
			add(&cases[len(cases)-1].In, content)
			wanted = false
		}
	}
	require.NotEmpty(t, cases)
	return cases
}

func add(text *string, line string) {
	if *text != "" {
		*text += "\n"
	}
	*text += line
}
