// Command server is holdfast: a durable A2A task server on PostgreSQL. It also has tools that talk to agents and
// inspect tasks.
package main

import (
	"os"

	"github.com/holdfast-a2a/holdfast/internal/cli"
)

func main() { os.Exit(cli.Main(nil)) }
