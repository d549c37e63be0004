package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTortureUsage(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "usage: holdfast torture URL..."},
		{[]string{"localhost:8080"}, `"localhost:8080" is not a URL`},
		{[]string{url, "--scripts", "lua"}, `--scripts: "lua" is unknown; use holdfast-demo or contract`},
		{[]string{url, "--check", "luck"}, `--check: "luck" is unknown; use acknowledged-tasks, `},
		{[]string{url, "--kill", "true"}, "--kill is given 1 times and --start 0 times"},
		{[]string{url, "--report", "out.txt"}, `--report: "out.txt" has no known suffix`},
		{[]string{url, "--protocol", "0.1"}, "--protocol: use 0.3 or 1.0"},
		{[]string{url, "--load", "0"}, "--load: use a number from 1 to 1000"},
		{[]string{url, "--patience", "0s"}, "--patience must be above 0"},
		{[]string{url, "--webhook-url", "http://me"}, "--webhook-url needs --webhook-listen"},
		{[]string{url, "--other-header", "me"}, `--other-header: "me" is not a header`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			r := session{}.run(t, append([]string{"torture"}, c.args...)...)
			require.Equal(t, exitUsage, r.code, r.err)
			require.Contains(t, r.err, "holdfast: "+c.want)
			require.Empty(t, r.out)
		})
	}
	gone := session{}.run(t, "torture", url)
	require.Equal(t, exitFailed, gone.code)
	require.Contains(t, gone.err, "connection refused")
}
