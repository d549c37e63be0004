// Command prebuild builds the servers that integration tests run, so that no test compiles. It builds them with the race
// detector if it was itself built so.
package main

import (
	"fmt"
	"os"

	"github.com/holdfast-a2a/holdfast/internal/test/clustertest"
)

func main() {
	builds := []func() (string, error){func() (string, error) { return clustertest.Build("holdfast") }, clustertest.BuildOffClock}
	for _, pkg := range clustertest.Programs {
		builds = append(builds, func() (string, error) { return clustertest.BuildProgram(pkg) })
	}
	for _, build := range builds {
		if _, err := build(); err != nil {
			fmt.Fprintln(os.Stderr, "prebuild:", err)
			os.Exit(1)
		}
	}
}
