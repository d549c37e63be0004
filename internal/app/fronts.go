package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/config"
	"github.com/holdfast-a2a/holdfast/internal/executor/a2a"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
)

// fronts are the executors of the agents that are A2A servers themselves, by the agents' names.
type fronts map[string]*a2a.Front

func buildFronts(cfg *config.Config, log *slog.Logger) (fronts, error) {
	out := fronts{}
	var mistakes []error
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		if a.Executor.Kind != config.ExecutorA2A {
			continue
		}
		u := &a.Executor.A2A
		front, err := a2a.New(a2a.Options{
			CardURL: u.CardURL, URL: u.URL, Version: u.Version, Binding: u.Binding, Poll: !u.Stream,
			Headers: u.Headers, Auth: a2a.Auth(u.Auth),
			ConnectTimeout: u.ConnectTimeout, CallTimeout: u.CallTimeout, PollInterval: u.PollInterval,
			// The run must end within its grace.
			CancelTimeout: min(5*time.Second, max(a.Limits.CancelGrace/2, 100*time.Millisecond)),
			MaxEvent:      int(a.Limits.MaxEvent), DirectReplies: a.DirectReplies, OwnExtensions: ownURIs(),
			Log: log.With("agent", a.Name),
		})
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("agent %s: %w", a.Name, err))
		}
		out[a.Name] = front
	}
	return out, errors.Join(mistakes...)
}

// describeWithin bounds the wait for the cards of agents, which a server that starts must not need.
const describeWithin = 5 * time.Second

// describe fills the cards of the configuration from those of the agents. The configuration's own members stay.
func (f fronts) describe(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	var reads sync.WaitGroup
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		front := f[a.Name]
		if front == nil {
			continue
		}
		reads.Go(func() {
			card, err := front.Card(ctx)
			if err != nil {
				log.Warn("could not read the agent's card, so its own card has only what the configuration says until the next start",
					"agent", a.Name, "error", err)
			} else {
				adopt(&a.Card, card)
			}
			a.CompleteCard()
		})
	}
	reads.Wait()
}

// adopt fills the members of a card that the configuration leaves out. Bindings, schemes and signatures are ours.
func adopt(c *config.Card, of *client.Card) {
	fill := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	plain := config.DefaultCard()
	if c.Version == plain.Version && of.Version != "" {
		c.Version = of.Version
	}
	fill(&c.Name, of.Name)
	fill(&c.Description, of.Description)
	fill(&c.DocumentationURL, of.DocumentationURL)
	fill(&c.IconURL, of.IconURL)
	if of.Provider != nil && c.Provider.Organization == "" {
		c.Provider = config.Provider(*of.Provider)
	}
	if modes := mediaTypes(of.InputModes); slices.Equal(c.DefaultInputModes, plain.DefaultInputModes) && modes != nil {
		c.DefaultInputModes = modes
	}
	if modes := mediaTypes(of.OutputModes); slices.Equal(c.DefaultOutputModes, plain.DefaultOutputModes) && modes != nil {
		c.DefaultOutputModes = modes
	}
	if len(c.Skills) == 0 {
		for _, s := range of.Skills {
			if s.ID == "" || slices.ContainsFunc(c.Skills, func(own config.Skill) bool { return own.ID == s.ID }) {
				continue // no card of ours may have it
			}
			s.InputModes, s.OutputModes = mediaTypes(s.InputModes), mediaTypes(s.OutputModes)
			c.Skills = append(c.Skills, config.Skill(s))
		}
	}
	for _, e := range of.Capabilities.Extensions {
		if u, err := url.Parse(e.URI); err != nil || !u.IsAbs() || strings.ContainsAny(e.URI, ", ") {
			continue // headers list them, separated by commas
		}
		if !slices.ContainsFunc(c.Extensions, func(own config.Extension) bool { return own.URI == e.URI }) {
			c.Extensions = append(c.Extensions, config.Extension{
				URI: e.URI, Description: e.Description, Required: e.Required, Params: config.JSON(e.Params),
			})
		}
	}
}

// mediaTypes returns the modes of a card as media types. Many agents write text for text/plain, as the schema of 0.1 did.
func mediaTypes(modes []string) (all []string) {
	for _, m := range modes {
		if m == "text" {
			m = "text/plain"
		}
		if t, _, err := mime.ParseMediaType(m); err == nil && strings.Contains(t, "/") && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}
