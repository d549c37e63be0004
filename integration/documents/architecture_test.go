package documents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every box of the pictures in docs/architecture.md is a package, and every solid arrow between two
// boxes of the first picture is an import.
func TestPicturesShowPackages(t *testing.T) {
	t.Parallel()
	pictures := blocksOf(t, "../../docs/architecture.md", "mermaid")
	require.Len(t, pictures, 5)
	outside := map[string]bool{"client": true, "agent": true, "receiver": true, "others": true, "pg": true}
	solid := 0
	for i, p := range pictures {
		for from, targets := range arrows(p.text) {
			for to, dotted := range targets {
				for _, box := range []string{from, to} {
					if !outside[box] {
						require.DirExists(t, filepath.Join("../../internal", box))
					}
				}
				if i > 0 || dotted || outside[from] || outside[to] {
					continue
				}
				solid++
				require.True(t, imports(t, from, to), "%s does not import %s", from, to)
			}
		}
	}
	require.Greater(t, solid, 6, "arrows were read")
}

var (
	arrow = regexp.MustCompile(`<?(-\.->|-->|-\. "[^"]*" \.->|-- "[^"]*" -->)`)
	label = regexp.MustCompile(`\[\("[^"]*"\)\]|\(\[[^\]]*\]\)|\["[^"]*"\]`)
)

// arrows reads a Mermaid flowchart: from each box to its targets, and whether the arrow is dotted.
func arrows(picture string) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for line := range strings.Lines(picture) {
		line = label.ReplaceAllString(line, "")
		at := arrow.FindAllStringIndex(line, -1)
		for i, a := range at {
			start, end := 0, len(line)
			if i > 0 {
				start = at[i-1][1]
			}
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			for from := range strings.SplitSeq(line[start:a[0]], "&") {
				for to := range strings.SplitSeq(line[a[1]:end], "&") {
					from, to := strings.TrimSpace(from), strings.TrimSpace(to)
					if found[from] == nil {
						found[from] = map[string]bool{}
					}
					found[from][to] = strings.Contains(line[a[0]:a[1]], "-.")
				}
			}
		}
	}
	return found
}

// imports reports whether a package of internal, or one below it, imports another or one below that.
func imports(t *testing.T, from, to string) bool {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, "./internal/"+from+"/...")
	list.Dir, list.Stderr = "../..", os.Stderr
	all, err := list.Output()
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)/internal/` + to + `(/|$)`).Match(all)
}
