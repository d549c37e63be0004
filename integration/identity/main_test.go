// Package identity shows which callers are let in: by keys, certificates and tokens, until these are revoked, expire
// or cannot be checked. It also shows that an agent can ask its client to authenticate.
package identity

import (
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/test/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/test/issuertest"
	"github.com/holdfast-a2a/holdfast/internal/test/receivertest"
)

type object = a2atest.Object

func TestMain(m *testing.M) {
	issuertest.Main()
	receivertest.Main()
	clustertest.Main(m)
}
