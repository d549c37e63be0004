package server

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
	"github.com/holdfast-a2a/holdfast/internal/engine"
	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/server/telemetry"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor/a2a"
)

// fronts are the executors of the agents that are A2A servers themselves, by the agents' names.
type fronts map[string]*a2a.Front

func buildFronts(cfg *config.Config, m *telemetry.Metrics, log *slog.Logger) (fronts, error) {
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
			CardKeys: u.CardKeys, CardKeysFile: u.CardKeysFile, Headers: u.Headers, Auth: a2a.Auth(u.Auth), Forward: u.Forward.Headers,
			PushInterval: pushInterval(a),
			// The run must end within its grace.
			CancelTimeout: min(5*time.Second, max(a.Limits.CancelGrace/2, 100*time.Millisecond)),
			MaxEvent:      int(a.Limits.MaxEvent), DirectReplies: a.DirectReplies, OwnExtensions: ownURIs(),
			Observe: m.Upstream(a.Name, "a2a"), Log: log.With("agent", a.Name),
		})
		if err != nil {
			mistakes = append(mistakes, fmt.Errorf("agent %s: %w", a.Name, err))
		}
		out[a.Name] = front
	}
	return out, errors.Join(mistakes...)
}

// forward returns the names of the headers of clients that an agent gets.
func (f fronts) forward(agent string) []string {
	if front := f[agent]; front != nil {
		return front.Forward()
	}
	return nil
}

// describeWithin bounds the wait for the cards of agents, which a server that starts must not need.
const describeWithin = 5 * time.Second

// read returns the cards of the agents that have one, by the agents' names.
func (f fronts) read(ctx context.Context, log *slog.Logger) map[string]*a2a.Cards {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	out := map[string]*a2a.Cards{}
	var mu sync.Mutex
	var reads sync.WaitGroup
	for name, front := range f {
		reads.Go(func() {
			cards, err := front.Cards(ctx)
			if err != nil {
				log.Warn("could not read the agent's card; until Holdfast can, its own card has only what the configuration says",
					"agent", name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[name] = cards
		})
	}
	reads.Wait()
	return out
}

// A face is how clients see an agent.
type face struct {
	own      *config.Agent
	public   *config.Card
	extended *config.Card // for callers that the agent admits; may be the public one
}

// newFace makes the face of an agent. theirs are the cards of the A2A server behind it, or nil. The configuration's own
// members stay.
func newFace(a *config.Agent, theirs *a2a.Cards) *face {
	if theirs == nil {
		theirs = &a2a.Cards{}
	}
	f := &face{own: a, public: faceCard(a, theirs.Public)}
	f.extended = f.public
	if theirs.Extended != nil {
		f.extended = faceCard(a, theirs.Extended)
		f.public.Extended, f.extended.Extended = true, true
	}
	return f
}

// faceCard returns the card of an agent, with what theirs has and the configuration leaves out. theirs may be nil.
func faceCard(a *config.Agent, theirs *client.Card) *config.Card {
	own := *a
	own.Card.Skills, own.Card.Extensions = slices.Clone(a.Card.Skills), slices.Clone(a.Card.Extensions)
	if theirs != nil {
		adopt(&own.Card, theirs)
	}
	own.CompleteCard()
	return &own.Card
}

// cards returns what the public server shows. extended is nil if it is the public card.
func (f *face) cards(cfg *config.Config) (public card.Card, extended *card.Card) {
	shown := func(c *config.Card) card.Card {
		out := describe(f.own, c, cfg.Auth.Schemes)
		out.Capabilities.PushNotifications = cfg.Push.Enabled
		return out
	}
	if f.extended != f.public {
		theirs := shown(f.extended)
		extended = &theirs
	}
	return shown(f.public), extended
}

// modes returns the media types that the agent reads and writes.
func (f *face) modes() (input, output []string) {
	c := f.extended
	return modes(c.DefaultInputModes, c.Skills, func(s *config.Skill) []string { return s.InputModes }),
		modes(c.DefaultOutputModes, c.Skills, func(s *config.Skill) []string { return s.OutputModes })
}

// extensions returns the extensions that requests may use.
func (f *face) extensions() (all []dispatch.Extension) {
	for _, e := range extensions(f.extended) {
		all = append(all, dispatch.Extension{URI: e.URI, Required: e.Required})
	}
	return all
}

// watch returns the parts that keep the faces of fronts current. Without the api role they keep only the addresses of
// agents current.
func (a *agents) watch(cfg *config.Config, eng *engine.Engine, operations *dispatch.Runner, api *rpc.Server) (parts []func(context.Context) error) {
	for i := range cfg.Agents {
		of := &cfg.Agents[i]
		front := a.fronts[of.Name]
		if front == nil {
			continue
		}
		changed := func(theirs *a2a.Cards) {
			if api == nil {
				return
			}
			f := newFace(of, theirs)
			input, output := f.modes()
			eng.SetModes(of.Name, input, output)
			operations.SetExtensions(of.Name, f.extensions())
			public, extended := f.cards(cfg)
			api.SetCards(of.Name, public, extended)
		}
		parts = append(parts, func(ctx context.Context) error {
			front.Watch(ctx, a.cards[of.Name], changed)
			return nil
		})
	}
	return parts
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
	fill(&c.DocumentationURL, webURL(of.DocumentationURL))
	fill(&c.IconURL, webURL(of.IconURL))
	if of.Provider != nil && c.Provider.Organization == "" {
		c.Provider = config.Provider{Organization: of.Provider.Organization, URL: webURL(of.Provider.URL)}
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
		if !slices.Contains(ownURIs(), e.URI) && !slices.ContainsFunc(c.Extensions, func(own config.Extension) bool { return own.URI == e.URI }) {
			c.Extensions = append(c.Extensions, config.Extension{
				URI: e.URI, Description: e.Description, Required: e.Required, Params: config.JSON(e.Params),
			})
		}
	}
}

// webURL returns a URL of the web, and "" for anything else: clients may show it as a link.
func webURL(s string) string {
	if u, err := url.Parse(s); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return s
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
