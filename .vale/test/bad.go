// Package bad has comments that the rules refuse.
package bad

// Who asks for it gets it anew.
const a = "Who asks for it gets it anew."

// What is older than the limit
// is deleted.
func b() {} /* whoever calls it */

func c() {
	d := 1 // what came before is none
	_ = d
}
