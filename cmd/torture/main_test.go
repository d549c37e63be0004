package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/test/casetest"
)

// testdata/usage.txt has arguments, and the mistake that each of them is told.
func TestWrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	for _, c := range casetest.Read(t, "testdata/usage.txt") {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(c.In)[1:], nil, &out, &errs)
		require.Equal(t, 2, code, errs.String())
		require.Contains(t, errs.String(), "torture: "+c.Want)
		require.Empty(t, out.String())
	}
}

// A credential on the command line gets a warning, which does not repeat it.
func TestNoServerFails(t *testing.T) {
	t.Parallel()
	for header, warns := range map[string]bool{"Authorization: Bearer s3cret": true, "X-Team: s3cret": false} {
		var errs bytes.Buffer
		require.Equal(t, 1, run(t.Context(), []string{"http://127.0.0.1:1", "--other-header", header}, nil, nil, &errs))
		require.Contains(t, errs.String(), "connection refused")
		require.Equal(t, warns, strings.Contains(errs.String(), "--other-header @FILE"), errs.String())
		require.NotContains(t, errs.String(), "s3cret")
	}
}
