// Package docs_test shows that the documents of the repository point at what is there: files, headings, tests and targets of make.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	within   = regexp.MustCompile(`\]\(#([^)\s]+)\)`)
	target   = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
	test     = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	heading  = regexp.MustCompile(`^#+ (.*\S)\s*$`)
	declared = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
)

// TestDocumentsPointAtWhatIsThere follows the relative links of every document, also to headings, and looks for the make targets named.
func TestDocumentsPointAtWhatIsThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	var docs []string
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"bin", "node_modules", "testdata"}, d.Name()) || (len(d.Name()) > 2 && d.Name()[0] == '.')):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			docs = append(docs, path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Contains(t, docs, "../README.md")
	tests := namesOfTests(t)
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			assert.True(t, tests[m[1]], "%s names %s, which no test has", doc, m[1])
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path := filepath.Join(filepath.Dir(doc), m[1])
			_, err := os.Stat(path)
			require.NoError(t, err, "%s links to %s", doc, m[1])
			if m[2] != "" && filepath.Ext(path) == ".md" {
				require.Contains(t, anchorsOf(t, path), m[2][1:], "%s links to %s", doc, m[0])
			}
		}
		for _, m := range within.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, anchorsOf(t, doc), m[1], "%s links to its own part", doc)
		}
		for _, m := range target.FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, string(makefile), "\n"+m[1]+":", "%s names make %s", doc, m[1])
		}
	}
}

// TestIndexHasEveryPage compares the index of the documents with their folder. Decisions have an index of their own.
func TestIndexHasEveryPage(t *testing.T) {
	t.Parallel()
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	links := map[string]int{}
	for _, m := range link.FindAllStringSubmatch(string(index), -1) {
		links[m[1]]++
	}
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		page := path
		switch ext := filepath.Ext(page); {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "decisions":
			page = "decisions/README.md"
		case page == "README.md" || !slices.Contains([]string{".md", ".yaml", ".json"}, ext):
			return nil
		}
		require.Equal(t, 1, links[page], "docs/README.md lists %s", page)
		if d.IsDir() {
			return filepath.SkipDir
		}
		return nil
	}))
}

// anchorsOf are those that GitHub makes of the headings of a document.
func anchorsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	anchors := map[string]bool{}
	fenced := false
	for line := range strings.Lines(string(doc)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		m := heading.FindStringSubmatch(line)
		if m == nil || fenced {
			continue
		}
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		for n, again := 1, name; anchors[name]; n++ {
			name = fmt.Sprintf("%s-%d", again, n)
		}
		anchors[name] = true
	}
	return anchors
}

// namesOfTests are those of the whole repository.
func namesOfTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			names[m[1]] = true
		}
		return err
	}))
	return names
}

// The README shows a part of a program whose test runs.
func TestTheREADMEQuotesTheDurableAgent(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("../examples/python/worker/refund.py")
	require.NoError(t, err)
	_, shown, found := strings.Cut(string(readme), "```python\n")
	require.True(t, found)
	shown, _, _ = strings.Cut(shown, "```")
	require.Contains(t, string(program), shown)
}
