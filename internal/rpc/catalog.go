package rpc

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
	"github.com/holdfast-a2a/holdfast/internal/task"
)

const (
	catalogPath = "/agents"
	// defaultPage and maxPage match the lists of A2A.
	defaultPage = 50
	maxPage     = 100
)

// catalog is the list of agents as clients read it.
type catalog struct {
	Agents        []listed `json:"agents"`
	NextPageToken string   `json:"nextPageToken"`
	PageSize      int      `json:"pageSize"`
	TotalSize     int      `json:"totalSize"`
}

type listed struct {
	Name    string         `json:"name"`
	Default bool           `json:"default"`
	CardURL string         `json:"cardUrl"`
	Card    jsontext.Value `json:"card"`
}

// catalogQuery is the query of a catalog request.
type catalogQuery struct {
	filter card.Filter
	size   int
	after  string // the name of the last agent on the page before
}

// serveCatalog lists the agents, sorted by name.
func (s *Server) serveCatalog(c echo.Context) error {
	q, err := readCatalogQuery(c.Request().URL.RawQuery)
	if err != nil {
		return echo.NewHTTPError(http.StatusBadRequest, task.Shown(err.Error()))
	}
	c.Response().Header().Add("Vary", versionHeader)
	base, fixed := s.baseURL(c)
	by, cacheControl := &admission{s: s}, publicCard
	if slices.ContainsFunc(s.names, func(name string) bool { return s.agents[name].personal() }) {
		by, cacheControl = s.reader(c.Request(), s.names...), privateCard
	}
	page := catalog{Agents: []listed{}, PageSize: q.size}
	for _, name := range s.names {
		a := s.agents[name]
		shown, err := cardOf(a, by)
		if err != nil && !refused(err) {
			return turnAway(c, err)
		}
		if err != nil || !q.filter.Matches(shown) {
			continue
		}
		page.TotalSize++
		if name <= q.after {
			continue
		}
		if len(page.Agents) == q.size {
			page.NextPageToken = page.Agents[q.size-1].Name
			continue
		}
		below := base + agentPath(name)
		d, err := s.cards.Render(name, shown, below, s.rendering(c), fixed)
		if err != nil {
			return err
		}
		page.Agents = append(page.Agents, listed{name, a.Default, below + cardPath, d.JSON})
	}
	body, err := json.Marshal(page)
	if err != nil {
		return err
	}
	return document(c, &card.Document{JSON: body, ETag: card.ETag(body)}, cacheControl)
}

// readCatalogQuery is strict: with a misspelt filter ignored, every agent would seem to match it.
func readCatalogQuery(query string) (*catalogQuery, error) {
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("query: %w", err)
	}
	q := &catalogQuery{size: defaultPage}
	lists := map[string]*[]string{
		"provider": &q.filter.Providers, "capability": &q.filter.Capabilities, "skill": &q.filter.Skills, "tag": &q.filter.Tags,
		"inputMode": &q.filter.InputModes, "outputMode": &q.filter.OutputModes,
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		values := params[name]
		list := lists[name]
		switch {
		case slices.Contains(values, "") && name != "pageToken" && name != versionHeader:
			return nil, fmt.Errorf("%s: must not be empty", name)
		case list != nil:
			*list = values
		case name != "pageSize" && name != "pageToken" && name != versionHeader:
			return nil, fmt.Errorf("unknown parameter %q; use provider, capability, skill, tag, inputMode, outputMode, pageSize, pageToken and %s", name, versionHeader)
		case len(values) > 1:
			return nil, fmt.Errorf("%s: must be given once", name)
		case name == "pageToken":
			q.after = values[0]
		case name == "pageSize":
			size, err := strconv.Atoi(values[0])
			if err != nil || size < 1 || size > maxPage {
				return nil, fmt.Errorf("pageSize: must be a number from 1 to %d", maxPage)
			}
			q.size = size
		}
	}
	for _, c := range q.filter.Capabilities {
		// An extension's URI has a colon.
		if !strings.Contains(c, ":") && !slices.ContainsFunc(card.CapabilityNames, func(n string) bool { return strings.EqualFold(n, c) }) {
			return nil, fmt.Errorf("capability: %q is none; use %s, or the URI of an extension", c, strings.Join(card.CapabilityNames, ", "))
		}
	}
	for _, name := range []string{"inputMode", "outputMode"} {
		for _, mode := range *lists[name] {
			if _, ok := card.MediaType(mode); !ok {
				return nil, fmt.Errorf("%s: %q is not a media type such as text/plain or text/*", name, mode)
			}
		}
	}
	return q, nil
}
