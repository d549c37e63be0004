package bench

import "testing"

func stored(b *testing.B) { b.Skip() }
