package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

const output = `postgresql-fsync: on
goos: linux
cpu: Some CPU
BenchmarkRawInsert/conns=16-2     	   20	  12345.6 commits/s	  1.256 p50-ms
BenchmarkBlocking/inflight=16-2   	 5000	  2400 tasks/s	  6.800 p50-ms
BenchmarkBlocking/inflight=17-2   	 5000	  -1234 tasks/s
PASS
ok  	github.com/holdfast-a2a/holdfast/bench	82.841s
`

const rendered = `postgresql-fsync: on; cpu: Some CPU

### Raw: one row for each transaction

| RawInsert | commits/s | p50-ms |
| --- | --- | --- |
| conns=16 | 12,346 | 1.26 |

### Blocking echo tasks

| Blocking | tasks/s | p50-ms | raw commits/s | raw echo requests/s |
| --- | --- | --- | --- | --- |
| inflight=16 | 2,400 | 6.80 | 12,346 |  |
| inflight=17 | -1,234 |  |  |  |
`

func TestReport(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, report(strings.NewReader(output), &out))
	require.Empty(t, cmp.Diff(rendered, out.String()))
}

// A run that failed halfway has tables too. It must not look like a complete run.
func TestReportRejectsFailedRun(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "PASS\n", output + "--- FAIL: BenchmarkStream\nFAIL\n", output + "panic: test timed out after 30m0s\n",
		"BenchmarkBlocking/inflight=16-2 5000 many tasks/s\n",
	} {
		var out strings.Builder
		require.Error(t, report(strings.NewReader(in), &out), in)
	}
}
