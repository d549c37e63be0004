package cli

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

//go:generate go test -count=1 -run ^TestPageOfVerbs$ . -update

// The part of docs/cli.md about verbs and flags is written from the tree of commands. Its introduction is not.
func TestPageOfVerbs(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, writeReference(&printer{w: &b}, (&command{}).root()))
	const page = "../../docs/cli.md"
	written := storetest.Must(os.ReadFile(page))(t)
	introduction, _, found := strings.Cut(string(written), "| verb |")
	require.True(t, found, "the page has a table")
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(introduction+b.String()), 0o600))
		return
	}
	require.Empty(t, cmp.Diff(introduction+b.String(), string(written)), "-verbs +docs/cli.md; make generate writes the page")
}

// Every verb says in a line what it does, at length what it needs, and shows a command line that it accepts. Every flag says what it
// does.
func TestEveryVerbTeaches(t *testing.T) {
	t.Parallel()
	seen := 0
	eachVerb((&command{}).root(), func(cmd *cobra.Command) {
		if cmd.Name() == "help" {
			return
		}
		seen++
		path := cmd.CommandPath()
		require.NotEmpty(t, cmd.Short, "%s has no line", path)
		require.NotContains(t, cmd.Short, "\n", path)
		require.NotEmpty(t, cmd.Long, "%s has no help", path)
		require.NotEqual(t, cmd.Short, cmd.Long, "%s says nothing more than its line", path)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, "%s: --%s says nothing", path, f.Name)
		})
		lines := commandLines(cmd.Example)
		require.NotEmpty(t, lines, "%s has no example", path)
		var own int
		for _, words := range lines {
			root := (&command{}).root() // flags keep their values
			found, rest, err := root.Find(words)
			require.NoError(t, err, "%s: %q", path, words)
			require.NoError(t, found.ParseFlags(rest), "%s: %q", path, words)
			require.NoError(t, found.ValidateArgs(found.Flags().Args()), "%s: %q", path, words)
			if found.CommandPath() == path || strings.HasPrefix(found.CommandPath(), path+" ") {
				own++
			}
		}
		require.NotZero(t, own, "no example of %s calls it", path)
	})
	require.Greater(t, seen, 40)
}

// commandLines returns the arguments of each call of holdfast in an example, as a shell would pass them.
func commandLines(example string) (calls [][]string) {
	for _, words := range simpleCommands(example) {
		if words[0] == "holdfast" {
			calls = append(calls, words[1:])
		}
	}
	return calls
}

// simpleCommands returns the words of each command of a script.
func simpleCommands(example string) (calls [][]string) {
	var words []string
	end := func() {
		if len(words) > 0 {
			calls = append(calls, words)
		}
		words = nil
	}
	example = strings.ReplaceAll(example, "|\n", "| ")
	for _, line := range strings.Split(example, "\n") {
		var word strings.Builder
		quote, inWord := rune(0), false
		finish := func() {
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		}
		for _, r := range line {
			switch {
			case quote != 0 && r == quote:
				quote = 0
			case quote != 0:
				_, _ = word.WriteRune(r)
			case r == '"' || r == '\'':
				quote, inWord = r, true
			case r == ' ':
				finish()
			case r == '|' || r == '&' || r == '>' || r == ';':
				finish()
				end()
			default:
				inWord = true
				_, _ = word.WriteRune(r)
			}
		}
		finish()
		end()
	}
	return calls
}

// Nouns and flags mean one thing in all verbs.
func TestFlagsAreConsistent(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{}
	eachVerb((&command{}).root(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name := cmd.CommandPath() + " --" + f.Name
			require.False(t, slices.Contains([]string{"token", "password", "key", "authorization", "secret", "credential"}, f.Name), "%s shows a secret to other users", name)
			if strings.Contains(f.Name, "header") {
				require.Equal(t, "header", f.Name, "%s: nobody warns of credentials", name)
				require.Implements(t, (*pflag.SliceValue)(nil), f.Value, name)
				require.Contains(t, f.Usage, "@FILE", name)
			}
			if f.Name == "state" || f.Name == "after" { // one or several states; a number of a log, or an event id of a stream
				return
			}
			if known := kinds[f.Name]; known != "" {
				require.Equal(t, known, f.Value.Type(), name)
			}
			kinds[f.Name] = f.Value.Type()
		})
		if cmd.Name() == "list" && cmd.LocalFlags().Lookup("owner") != nil {
			require.NotNil(t, cmd.LocalFlags().Lookup("tenant"), "%s: an owner is one of a tenant", cmd.CommandPath())
		}
		if runs(cmd) && cmd.LocalFlags().Lookup("output") == nil {
			require.Contains(t, []string{"serve", "dev", "completion"}, verbOf(cmd), "has no -o json")
		}
	})
}

// writeReference writes what docs/cli.md has about each verb and flag, in Markdown.
func writeReference(p *printer, root *cobra.Command) error {
	p.line("| verb | |\n|---|---|")
	eachVerb(root, func(cmd *cobra.Command) {
		if runs(cmd) {
			p.line("| [`%s`](#%s) | %s |", verbOf(cmd), anchor(cmd), lowerFirst(cmd.Short))
		}
	})
	p.line("\n## Flags of every verb\n")
	p.flags(root.PersistentFlags())
	p.line("| `-o`, `--output` | `table` | `table`, or `json` with stable names. All but `serve`, `dev` and `completion` have it |")
	p.line("| `-h`, `--help` |  | the help of the verb |")
	p.line("\n## Flags of operators\n\nThe verbs that use the database or a server have these, and `--reason` if they act:\n")
	keys, _, err := root.Find([]string{"api-keys"})
	if err != nil {
		return err
	}
	shared := ownFlags(keys, nil)
	p.flags(shared)
	eachVerb(root, func(cmd *cobra.Command) {
		if cmd == root || cmd.Name() == "help" {
			return
		}
		level := "##"
		if cmd.Parent() != root {
			level = "###"
		}
		p.line("\n%s %s\n", level, verbOf(cmd))
		if runs(cmd) { // the table above has its line
			p.line("```\n%s\n```\n", cmd.UseLine())
		}
		p.line("%s", asMarkdown(strings.TrimSuffix(cmd.Long, "\n\n"+aboutOperators)))
		if runs(cmd) {
			p.line("\n```sh\n%s\n```", outdented(cmd.Example))
		}
		if own := ownFlags(cmd, shared); own.HasFlags() {
			p.line("")
			if !runs(cmd) {
				p.line("Flags of these verbs:\n")
			}
			p.flags(own)
		}
	})
	return p.err
}

// runs reports whether a command is a verb, and not only the beginning of others.
func runs(cmd *cobra.Command) bool {
	return cmd.HasParent() && !cmd.HasSubCommands() && cmd.Name() != "help"
}

// ownFlags returns the flags that a command adds to those of its parents and to the shared ones; shared may be nil.
func ownFlags(cmd *cobra.Command, shared *pflag.FlagSet) *pflag.FlagSet {
	own := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		var known *pflag.Flag
		if shared != nil {
			known = shared.Lookup(f.Name)
		}
		if f.Name != "help" && f.Name != "output" && (known == nil || known.Usage != f.Usage) {
			own.AddFlag(f)
		}
	})
	return own
}

func (p *printer) flags(flags *pflag.FlagSet) {
	p.line("| flag | default | |\n|---|---|---|")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := ""
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			value = "`" + f.DefValue + "`"
		}
		p.line("| %s | %s | %s |", name, value, strings.NewReplacer("|", `\|`, "<", `\<`).Replace(f.Usage))
	})
}

// asMarkdown makes Markdown of a help: paragraphs without the line breaks of a terminal, and lists of words as they are.
func asMarkdown(long string) string {
	var out []string
	for _, paragraph := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if strings.HasPrefix(paragraph, "  ") {
			out = append(out, "```\n"+outdented(paragraph)+"\n```")
			continue
		}
		text := strings.Join(strings.Fields(paragraph), " ")
		out = append(out, strings.NewReplacer("<", `\<`, "_", `\_`, "*", `\*`).Replace(text))
	}
	return strings.Join(out, "\n\n")
}

func outdented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

// anchor returns the name of the heading of a verb in Markdown.
func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(verbOf(cmd), " ", "-") }

func lowerFirst(s string) string {
	if len(s) > 1 && s[1] >= 'a' && s[1] <= 'z' {
		return strings.ToLower(s[:1]) + s[1:]
	}
	return s
}
