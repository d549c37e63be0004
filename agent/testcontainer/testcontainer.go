// Package testcontainer runs a Holdfast server with a PostgreSQL in one container, by Testcontainers, for tests:
//
//	server, err := testcontainer.Run(ctx, "REGISTRY/holdfast:dev-vVERSION", []string{"trips"})
//	defer testcontainers.TerminateContainer(server)
//
// The agents are workers, which the test serves at server.URL. Without Docker, package devserver does the same with a binary.
package testcontainer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Container is a server that runs.
type Container struct {
	testcontainers.Container

	URL      string // of the agents: HOLDFAST_URL of a worker
	AdminURL string // of metrics, health and, below /console/, the console
}

const config = "/tmp/holdfast.yaml"

// Run starts an image dev-vVERSION of Holdfast with these agents, and returns when it is ready. Everybody who reaches a port of the
// container may use it. Customizers may add, for example, keys of the configuration as variables. Also after an error, a container
// that is not nil must be terminated.
func Run(ctx context.Context, image string, agents []string, customizers ...testcontainers.ContainerCustomizer) (*Container, error) {
	var served []map[string]any
	for _, name := range agents {
		served = append(served, map[string]any{"name": name, "executor": map[string]any{"kind": "worker"}})
	}
	file, err := json.Marshal(map[string]any{"agents": served}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	started, err := testcontainers.Run(ctx, image, append([]testcontainers.ContainerCustomizer{
		testcontainers.WithExposedPorts("8080/tcp", "9090/tcp"),
		testcontainers.WithEnv(map[string]string{"HOLDFAST_CONFIG": config}),
		testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader(string(file)), ContainerFilePath: config, FileMode: 0o644}),
		testcontainers.WithWaitStrategy(wait.ForHTTP("/readyz").WithPort("9090/tcp")),
	}, customizers...)...)
	var c *Container
	if started != nil {
		c = &Container{Container: started}
	}
	if err != nil {
		return c, fmt.Errorf("start %s: %w", image, err)
	}
	if c.URL, err = c.PortEndpoint(ctx, "8080/tcp", "http"); err != nil {
		return c, err
	}
	c.AdminURL, err = c.PortEndpoint(ctx, "9090/tcp", "http")
	return c, err
}
