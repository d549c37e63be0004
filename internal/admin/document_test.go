package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/admin"
	"github.com/holdfast-a2a/holdfast/internal/test/openapitest"
)

// The document has the operations of the API, and says what each of them needs.
func TestDocumentHasTheOperations(t *testing.T) {
	t.Parallel()
	document := openapitest.Document{File: "admin-api.yaml"}
	want, err := document.Operations()
	require.NoError(t, err)
	var have []openapitest.Operation
	for _, o := range admin.Operations() {
		have = append(have, openapitest.Operation{Method: o.Method, Path: o.Path, Right: o.Right.String(), AllTenants: o.Whole})
	}
	require.ElementsMatch(t, want, have)
}
