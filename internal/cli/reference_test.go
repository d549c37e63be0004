package cli

import (
	"bytes"
	"fmt"
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
	const page, heading = "../../docs/cli.md", "\n## Verbs\n"
	written := storetest.Must(os.ReadFile(page))(t)
	introduction, _, found := strings.Cut(string(written), heading)
	require.True(t, found, "the page has the part")
	introduction += heading
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
		if isTopic(cmd) {
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
		line, _, _ = strings.Cut(line, "  #")
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

// common is what several verbs have alike, which the page has once.
type common struct {
	heading, about string // about is also in their helps
	verbs          []string
	flags          *pflag.FlagSet
}

// writeReference writes what docs/cli.md has about each verb and flag, in Markdown.
func writeReference(p *printer, root *cobra.Command) error {
	p.line("")
	eachVerb(root, func(cmd *cobra.Command) {
		if cmd.Parent() != root || isTopic(cmd) {
			return
		}
		line := fmt.Sprintf("- [`%s`](#%s): %s", verbOf(cmd), anchor(cmd), lowerFirst(cmd.Short))
		separator := ": "
		for _, verb := range cmd.Commands() {
			line += fmt.Sprintf("%s[`%s`](#%s)", separator, verb.Name(), anchor(verb))
			separator = ", "
		}
		p.line("%s", line)
	})
	p.line("\n## Flags of every verb\n")
	p.flags(root.PersistentFlags())
	p.line("- `-o`, `--output` (`table`): `table`, `wide` (every column, uncut), or `json` with stable names. All but `serve`, `dev` and `completion` have it")
	p.line("- `-w`, `--watch`, of `status`, `inbox` and each `list`: show it again every two seconds")
	p.line("- `-h`, `--help`: the help of the verb")
	shared := []common{
		{heading: "Flags of operators", about: aboutOperators, verbs: []string{"api-keys"}},
		{heading: "Flags of messages", about: aboutServers, verbs: []string{"send", "stream"}},
		{heading: "Flags that select tasks", about: strings.TrimSpace(bulkHelp), verbs: []string{"tasks cancel", "tasks retry", "tasks purge"}},
	}
	for i := range shared {
		if err := shared[i].find(root); err != nil {
			return err
		}
		p.line("\n## %s\n\n%s\n", shared[i].heading, asMarkdown(shared[i].about))
		p.flags(shared[i].flags)
	}
	eachVerb(root, func(cmd *cobra.Command) {
		if cmd == root || isTopic(cmd) {
			return
		}
		level := "##"
		if cmd.Parent() != root {
			level = "###"
		}
		p.line("\n%s %s\n", level, verbOf(cmd))
		if runs(cmd) {
			p.line("`%s`\n", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		long, own := cmd.Long, ownFlags(cmd)
		var also []string
		for i := range shared {
			long = strings.ReplaceAll(long, "\n\n"+shared[i].about, "")
			var have []string
			if own, have = without(own, shared[i].flags); i > 0 && len(have) > 0 {
				also = append(also, shared[i].names(have))
			}
		}
		p.line("%s", asMarkdown(long))
		if runs(cmd) {
			p.line("\n```sh\n%s\n```", outdented(cmd.Example))
		}
		if len(also) > 0 {
			p.line("\nAlso %s.", strings.Join(also, "; "))
		}
		if own.HasFlags() {
			p.line("")
			p.flags(own)
		}
	})
	return p.err
}

// find collects the flags that all verbs have.
func (c *common) find(root *cobra.Command) error {
	for _, verb := range c.verbs {
		cmd, _, err := root.Find(strings.Fields(verb))
		if err != nil {
			return err
		}
		flags := ownFlags(cmd)
		if c.flags == nil {
			c.flags = flags
			continue
		}
		both := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.flags.VisitAll(func(f *pflag.Flag) {
			if same(flags.Lookup(f.Name), f) {
				both.AddFlag(f)
			}
		})
		c.flags = both
	}
	return nil
}

// names links to the flags of a verb that are described once.
func (c *common) names(have []string) string {
	all := 0
	c.flags.VisitAll(func(*pflag.Flag) { all++ })
	link := fmt.Sprintf("[%s](#%s)", lowerFirst(c.heading), strings.ReplaceAll(strings.ToLower(c.heading), " ", "-"))
	if len(have) == all {
		return "the " + link
	}
	return fmt.Sprintf("`--%s` of the %s", strings.Join(have, "`, `--"), link)
}

// without returns the flags that are not shared, and the names of those that are.
func without(own, shared *pflag.FlagSet) (rest *pflag.FlagSet, names []string) {
	rest = pflag.NewFlagSet("", pflag.ContinueOnError)
	own.VisitAll(func(f *pflag.Flag) {
		if same(shared.Lookup(f.Name), f) {
			names = append(names, f.Name)
		} else {
			rest.AddFlag(f)
		}
	})
	return rest, names
}

func same(a, b *pflag.Flag) bool { return a != nil && a.Usage == b.Usage && a.DefValue == b.DefValue }

// runs reports whether a command is a verb, and not only the beginning of others.
func runs(cmd *cobra.Command) bool {
	return cmd.HasParent() && !cmd.HasSubCommands() && !isTopic(cmd)
}

func isTopic(cmd *cobra.Command) bool {
	return cmd.Name() == "help" || cmd.IsAdditionalHelpTopicCommand()
}

// ownFlags returns the flags that a command adds to those of its parents and to those of every verb.
func ownFlags(cmd *cobra.Command) *pflag.FlagSet {
	own, all := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError), cmd.LocalFlags()
	if cmd.HasSubCommands() { // the others are those of its list
		all = cmd.PersistentFlags()
	}
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "output" && f.Name != "watch" {
			own.AddFlag(f)
		}
	})
	return own
}

func (p *printer) flags(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			name += " (`" + f.DefValue + "`)"
		}
		p.line("- %s: %s", name, strings.ReplaceAll(f.Usage, "<", `\<`))
	})
}

// asMarkdown makes Markdown of a help: paragraphs without the line breaks of a terminal, and lists of words as they are.
func asMarkdown(long string) string {
	var out []string
	for _, paragraph := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if strings.HasPrefix(paragraph, "Exit codes:") { // the page has a table
			continue
		}
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
