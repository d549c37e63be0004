package rpc

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/web/fault"
)

const (
	cardPath = "/.well-known/agent-card.json"
	// legacyCardPath is where clients of 0.2 and older look.
	legacyCardPath = "/.well-known/agent.json"
	// keySetPath serves the public keys that verify card signatures.
	keySetPath = "/.well-known/jwks.json"
)

// KeySet is a signer that publishes its keys.
type KeySet interface {
	card.Signer
	// Set returns a JSON Web Key Set.
	Set() []byte
}

// publisher makes the publisher that renders the cards of this server.
func (s *Server) publisher(bindings ...card.Binding) *card.Publisher {
	o := card.Options{Bindings: bindings}
	if s.opt.Keys != nil && !s.opt.PlainCards && s.opt.PublicURL != "" {
		o.Signer, o.KeySetURL = s.opt.Keys, s.opt.PublicURL+keySetPath
	}
	return card.NewPublisher(o)
}

// cardRoutes serves the card of an agent below a path.
func (s *Server) cardRoutes(e *echo.Echo, base string, a *served) {
	get(e, base+cardPath, func(c echo.Context) error {
		c.Response().Header().Add("Vary", versionHeader)
		return s.card(c, base, a, s.rendering(c))
	})
	get(e, base+legacyCardPath, func(c echo.Context) error {
		return s.card(c, base, a, card.RenderLegacy)
	})
	// 0.2 serves the extended card below the endpoint.
	get(e, base+"/agent/authenticatedExtendedCard", func(c echo.Context) error {
		extended := a.extended()
		if extended == nil {
			return echo.ErrNotFound
		}
		caller, err := s.reader(c.Request(), a.Name).Admit(a.Name)
		if err != nil {
			return turnAway(c, err)
		}
		return s.render(c, base, a, extended.For(caller.Has), card.RenderLegacy, privateCard)
	})
}

// get serves a path for GET and HEAD.
func get(e *echo.Echo, path string, h echo.HandlerFunc) {
	e.Match([]string{http.MethodGet, http.MethodHead}, path, h)
}

const versionHeader = "A2A-Version"

// rendering chooses the rendering for the version that a reader names. Without a version, or with
// an unknown one, the reader gets the operator's default: the card is where clients learn what the
// server speaks.
func (s *Server) rendering(c echo.Context) card.Rendering {
	version := c.Request().Header.Get(versionHeader)
	if version == "" {
		version = c.QueryParam(versionHeader)
	}
	return card.ForReader(version, s.opt.Unversioned)
}

// publicCard lets caches keep a card that is the same for all readers. privateCard is for cards
// that differ by reader.
const (
	publicCard  = "max-age=60"
	privateCard = "private, no-cache"
)

// card answers with the card of an agent that is served below a path.
func (s *Server) card(c echo.Context, base string, a *served, r card.Rendering) error {
	if !a.personal() {
		return s.render(c, base, a, a.card(), r, publicCard)
	}
	shown, err := cardOf(a, s.reader(c.Request(), a.Name))
	if err != nil {
		return turnAway(c, err)
	}
	return s.render(c, base, a, shown, r, privateCard)
}

func (s *Server) render(c echo.Context, base string, a *served, shown *card.Card, r card.Rendering, cacheControl string) error {
	url, fixed := s.baseURL(c)
	d, err := s.cards.Render(a.Name, shown, url+base, r, fixed)
	if err != nil {
		return err
	}
	return document(c, d, cacheControl)
}

// baseURL returns the URL of the server without a slash at the end. fixed says that the operator
// has set it; otherwise it follows the request.
func (s *Server) baseURL(c echo.Context) (url string, fixed bool) {
	if s.opt.PublicURL != "" {
		return s.opt.PublicURL, true
	}
	c.Response().Header().Add("Vary", "X-Forwarded-Proto")
	return c.Scheme() + "://" + c.Request().Host, false
}

// extendedCard answers the operations for the extended card. It shows the parts that the caller may
// see. Agents that do not declare an extended card have none.
func (s *Server) extendedCard(r *dispatch.Request) ([]byte, error) {
	a, traits := s.agents[r.Agent], r.Codec.Traits()
	var extended *card.Card
	if a != nil {
		extended = a.extended()
	}
	switch {
	case traits.UndeclaredCards && extended == nil:
		return nil, task.Errorf(task.Unsupported, "the card declares no extended card")
	case extended == nil, s.opt.PublicURL == "":
		return nil, &task.Error{Kind: task.NoExtendedCard}
	}
	below := s.opt.PublicURL
	if !a.Default {
		below += agentPath(a.Name)
	}
	d, err := s.cards.Render(a.Name, extended.For(r.Caller.Has), below, traits.Card, true)
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}

// keySet serves the keys that verify signatures.
func (s *Server) keySet(c echo.Context) error {
	set := s.opt.Keys.Set()
	if set == nil {
		return echo.NewHTTPError(http.StatusServiceUnavailable)
	}
	return document(c, &card.Document{JSON: set, ETag: card.ETag(set)}, "max-age=300")
}

// document answers with JSON that readers may cache.
func document(c echo.Context, d *card.Document, cacheControl string) error {
	h := c.Response().Header()
	h.Set("Cache-Control", cacheControl)
	h.Set("ETag", d.ETag)
	if known(c.Request().Header.Values("If-None-Match"), d.ETag) {
		return c.NoContent(http.StatusNotModified)
	}
	h.Set("Content-Length", strconv.Itoa(len(d.JSON)))
	return c.Blob(http.StatusOK, "application/json", d.JSON)
}

// known reports whether If-None-Match names a tag. A proxy that compresses turns it into a weak
// tag.
func known(lists []string, tag string) bool {
	for _, list := range lists {
		for candidate := range strings.SplitSeq(list, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// reader authenticates a request that reads cards or the catalog.
func (s *Server) reader(r *http.Request, agents ...string) *admission {
	return s.admission(r.Context(), Shown(r), agents...)
}

// cardOf returns the card of an agent as a reader sees it. An agent with a scope shows its card
// only to callers with that scope. Any other card is public: a caller with an expired token must
// learn where to get a new one. Skills may have scopes of their own. Callers that may lack the
// scope must not learn that the skill exists.
func cardOf(a *served, reader *admission) (*card.Card, error) {
	c, err := reader.Admit(a.Name)
	if err != nil && (a.Gate.Scope != "" || a.personal() && !refused(err)) {
		return nil, err
	}
	return a.card().For(c.Has), nil
}

// refused reports whether an error rejects the credentials. It is false when they could not be
// checked.
func refused(err error) bool {
	kind := task.KindOf(err)
	return kind == task.Unauthenticated || kind == task.Forbidden
}

// personal reports whether the card of an agent differs by reader.
func (a *served) personal() bool { return a.Gate.Scope != "" || a.card().Restricted() }

// turnAway answers a reader that the agent does not admit, in the shape of no version.
func turnAway(c echo.Context, err error) error {
	var e *task.Error
	if known, ours := dispatch.Known(err); !ours {
		e = known
	} else {
		return err
	}
	fault.Headers(e, c.Response().Header().Add)
	c.Response().Header().Set("Cache-Control", "no-store")
	row := fault.Base.Row(e.Kind)
	return c.JSON(row.HTTP, map[string]string{"error": http.StatusText(row.HTTP)})
}

// PublicCard returns the card of an agent for operators, with the parts that need a scope. base is the URL of the server.
func (s *Server) PublicCard(agent, base string) ([]byte, error) {
	a := s.agents[agent]
	if a == nil {
		return nil, nil
	}
	d, err := s.cards.Render(agent, a.card(), base+agentPath(agent), card.RenderSuperset, s.opt.PublicURL != "")
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}
