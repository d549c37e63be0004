package torture_test

import (
	"os"
	"testing"

	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.AtATime(6)
	os.Exit(m.Run())
}
