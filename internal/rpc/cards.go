package rpc

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/rpc/card"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect"
	"github.com/holdfast-a2a/holdfast/internal/rpc/operation"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	cardPath = "/.well-known/agent-card.json"
	// legacyCardPath is where clients look that know nothing newer than 0.2.
	legacyCardPath = "/.well-known/agent.json"
	// keySetPath is where the keys are that cards are signed with.
	keySetPath = "/.well-known/jwks.json"
)

// KeySet is a signer that publishes its keys.
type KeySet interface {
	card.Signer
	// Set is a JSON Web Key Set.
	Set() []byte
}

// publisher is what renders the cards of this server.
func (s *Server) publisher(bindings ...card.Binding) *card.Publisher {
	o := card.Options{Bindings: bindings}
	if s.opt.Keys != nil && !s.opt.PlainCards && s.opt.PublicURL != "" {
		o.Signer, o.KeySetURL = s.opt.Keys, s.opt.PublicURL+keySetPath
	}
	return card.NewPublisher(o)
}

// cardRoutes serves the card of an agent below a path.
func (s *Server) cardRoutes(e *echo.Echo, base string, a *Agent) {
	get(e, base+cardPath, func(c echo.Context) error {
		c.Response().Header().Add("Vary", versionHeader)
		return s.card(c, base, a, s.rendering(c))
	})
	get(e, base+legacyCardPath, func(c echo.Context) error {
		return s.card(c, base, a, card.RenderLegacy)
	})
	if !a.Card.Capabilities.ExtendedCard {
		return
	}
	// The extended card of 0.2, beside the endpoint.
	get(e, base+"/agent/authenticatedExtendedCard", func(c echo.Context) error {
		shown := a.Card.For(nobody.Has)
		if s.opt.Auth != nil {
			p, err := s.opt.Auth.Admit(s.reader(c.Request(), a.Name).id, &a.Gate)
			if err != nil {
				return turnAway(c, err)
			}
			shown = a.Card.For(p.Has)
		}
		return s.render(c, base, a, shown, card.RenderLegacy, privateCard)
	})
}

// get serves a path to readers.
func get(e *echo.Echo, path string, h echo.HandlerFunc) {
	e.Match([]string{http.MethodGet, http.MethodHead}, path, h)
}

const versionHeader = "A2A-Version"

// rendering is that of the version that a reader names. Whoever names none, or one that
// we do not know, gets what suits most: the card is where they learn what is served.
func (s *Server) rendering(c echo.Context) card.Rendering {
	version := c.Request().Header.Get(versionHeader)
	if version == "" {
		version = c.QueryParam(versionHeader)
	}
	switch {
	case card.IsCurrent(version):
		return card.RenderStrict
	case strings.HasPrefix(version, "0."):
		return card.RenderSuperset
	}
	return s.opt.Unversioned
}

// publicCard is how long a card may be kept that is the same for everybody, privateCard one
// that may not be.
const (
	publicCard  = "max-age=60"
	privateCard = "private, no-cache"
)

// card answers with the card of an agent that is served below a path.
func (s *Server) card(c echo.Context, base string, a *Agent, r card.Rendering) error {
	if !a.personal() {
		return s.render(c, base, a, &a.Card, r, publicCard)
	}
	shown, err := s.cardOf(a, s.reader(c.Request(), a.Name))
	if err != nil {
		return turnAway(c, err)
	}
	return s.render(c, base, a, shown, r, privateCard)
}

func (s *Server) render(c echo.Context, base string, a *Agent, shown *card.Card, r card.Rendering, cacheControl string) error {
	url, fixed := s.baseURL(c)
	d, err := s.cards.Render(a.Name, shown, url+base, r, fixed)
	if err != nil {
		return err
	}
	return document(c, d, cacheControl)
}

// baseURL is that of the server, without a slash at the end; fixed, or else as the
// request has it.
func (s *Server) baseURL(c echo.Context) (url string, fixed bool) {
	if s.opt.PublicURL != "" {
		return s.opt.PublicURL, true
	}
	c.Response().Header().Add("Vary", "X-Forwarded-Proto")
	return c.Scheme() + "://" + c.Request().Host, false
}

// extendedCard is what the operations for the extended card answer: for an agent that declares
// one, what whoever asks may see of it.
func (s *Server) extendedCard(r *operation.Request) ([]byte, error) {
	a, version := s.agents[r.Agent], r.Codec.Version()
	switch {
	case card.IsCurrent(version) && (a == nil || !a.Card.Capabilities.ExtendedCard):
		// 1.0 tells what the card does not declare from what it declares and is not there.
		return nil, task.Errorf(task.Unsupported, "the card declares no extended card")
	case a == nil, !a.Card.Capabilities.ExtendedCard, s.opt.PublicURL == "":
		return nil, &task.Error{Kind: task.NoExtendedCard}
	}
	below := s.opt.PublicURL
	if !a.Default {
		below += agentPath(a.Name)
	}
	rendering := card.ForVersion(version)
	if r.Codec.ID() == dialect.V03Binary {
		rendering = card.RenderBinary
	}
	d, err := s.cards.Render(a.Name, a.Card.For(r.Principal.Has), below, rendering, true)
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}

// keySet serves the keys that signatures are checked with.
func (s *Server) keySet(c echo.Context) error {
	set := s.opt.Keys.Set()
	if set == nil {
		return echo.NewHTTPError(http.StatusServiceUnavailable)
	}
	return document(c, &card.Document{JSON: set, ETag: card.ETag(set)}, "max-age=300")
}

// document answers with JSON that readers may keep.
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

// known reports whether If-None-Match names a tag. A proxy that compresses makes it weak.
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
