package rpc_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/rpc"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/card"
)

type page struct {
	Agents []struct {
		Name    string
		Default bool
		CardURL string
		Card    json.RawMessage
	}
	NextPageToken       *string
	PageSize, TotalSize int
}

func readCatalog(t *testing.T, s *httptest.Server, query string, headers ...string) (*page, []string) {
	t.Helper()
	r := do(t, s, http.MethodGet, "/agents"+query, "", headers...)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", query, r.body)
	require.Equal(t, "application/json", r.Header.Get("Content-Type"))
	require.Equal(t, "A2A-Version", r.Header.Get("Vary"))
	require.Equal(t, "max-age=60", r.Header.Get("Cache-Control"))
	var p page
	require.NoError(t, json.Unmarshal(r.body, &p))
	require.NotNil(t, p.NextPageToken)
	names := []string{}
	for _, a := range p.Agents {
		names = append(names, a.Name)
	}
	return &p, names
}

func polyglots(o *rpc.Options) {
	o.Agents = []rpc.Agent{
		{Name: "translator", Default: true, Card: card.Card{
			Name: "Translator", Version: "1", InputModes: []string{"text/plain"},
			Skills: []card.Skill{{ID: "translate", Name: "Translate", Description: "<d>", Tags: []string{"language"}}},
		}},
		{Name: "speaker", Card: card.Card{
			Name: "Speaker", Version: "1", OutputModes: []string{"audio/mpeg"},
			Skills: []card.Skill{{ID: "speak", Name: "Speak", Description: "d", Tags: []string{"language", "audio"}}},
		}},
		{Name: "mute", Card: card.Card{Name: "Mute", Version: "1"}},
	}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	p, names := readCatalog(t, s, "")
	require.Equal(t, []string{"mute", "speaker", "translator"}, names)
	require.Empty(t, *p.NextPageToken)
	require.Equal(t, 50, p.PageSize)
	require.Equal(t, 3, p.TotalSize)
	for _, a := range p.Agents {
		require.Equal(t, a.Name == "translator", a.Default)
		path, ok := strings.CutPrefix(a.CardURL, "https://a2a.example.com")
		require.True(t, ok, a.CardURL)
		require.Equal(t, string(do(t, s, http.MethodGet, path, "").body), string(a.Card), "the same bytes as at the card's own URL")
	}
	for version, want := range map[string]string{"": "superset", "1.0": "strict10", "0.3": "superset"} {
		p, _ := readCatalog(t, s, "", "A2A-Version", version)
		require.Equal(t, want, shape(t, p.Agents[0].Card))
		p, _ = readCatalog(t, s, "?A2A-Version="+version)
		require.Equal(t, want, shape(t, p.Agents[0].Card))
	}
}

func TestCatalogFilters(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	for query, want := range map[string][]string{
		"?skill=Speak&tag=audio":                  {"speaker"},
		"?tag=language&tag=audio":                 {"speaker"},
		"?inputMode=text%2Fplain&tag=bird":        {},
		"/?tag=audio":                             {"speaker"},
		"?capability=extendedagentcard&tag=audio": {},
	} {
		p, names := readCatalog(t, s, query)
		require.Equal(t, want, names, query)
		require.Equal(t, len(want), p.TotalSize)
	}
}

func TestCatalogPages(t *testing.T) {
	t.Parallel()
	s := cardServer(t, func(o *rpc.Options) {
		o.Agents = nil
		for i := range 7 {
			o.Agents = append(o.Agents, rpc.Agent{Name: fmt.Sprintf("a%d", 6-i), Card: card.Card{
				Name: "A", Version: "1", Skills: []card.Skill{{ID: "s", Tags: []string{[]string{"even", "odd"}[i%2]}}},
			}})
		}
	})
	all := func(query string) (pages [][]string) {
		token := ""
		for {
			p, names := readCatalog(t, s, query+"&pageToken="+url.QueryEscape(token))
			pages = append(pages, names)
			require.Equal(t, map[string]int{"?pageSize=3": 7, "?pageSize=7": 7, "?pageSize=2&tag=even": 4}[query], p.TotalSize)
			if token = *p.NextPageToken; token == "" {
				return pages
			}
		}
	}
	require.Equal(t, [][]string{{"a0", "a1", "a2"}, {"a3", "a4", "a5"}, {"a6"}}, all("?pageSize=3"))
	require.Equal(t, [][]string{{"a0", "a1", "a2", "a3", "a4", "a5", "a6"}}, all("?pageSize=7"))
	require.Equal(t, [][]string{{"a0", "a2"}, {"a4", "a6"}}, all("?pageSize=2&tag=even"))
	_, names := readCatalog(t, s, "?pageToken=a4x")
	require.Equal(t, []string{"a5", "a6"}, names, "after an agent that does not exist any more")
}

func TestCatalogNotModified(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	r := do(t, s, http.MethodGet, "/agents?tag=audio", "")
	tag := r.Header.Get("ETag")
	for query, want := range map[string]int{"?tag=audio": 304, "": 200} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			require.Equal(t, want, do(t, s, method, "/agents"+query, "", "If-None-Match", tag).StatusCode)
		}
	}
	h := do(t, s, http.MethodHead, "/agents?tag=audio", "")
	require.Equal(t, tag, h.Header.Get("ETag"))
	require.Equal(t, int64(len(r.body)), h.ContentLength)
	require.Empty(t, h.body)
	require.Equal(t, http.StatusOK, do(t, s, http.MethodGet, "/agents?tag=audio", "", "If-None-Match", tag, "A2A-Version", "1.0").StatusCode)
}

func TestCatalogRefusals(t *testing.T) {
	t.Parallel()
	s := cardServer(t, polyglots)
	for query, says := range map[string]string{
		"?skills=translate":            `unknown parameter "skills"; use provider, capability, skill, tag,`,
		"?capability=stream":           `capability: "stream" is none; use streaming, pushNotifications, extendedAgentCard, or`,
		"?tag=%zz":                     `query: invalid URL escape "%zz"`,
		"?tag=a;skill=b":               "query: invalid semicolon",
		"?tag=":                        "tag: must not be empty",
		"?tag=a&tag=":                  "tag: must not be empty",
		"?skill":                       "skill: must not be empty",
		"?pageSize=0":                  "pageSize: must be a number from 1 to 100",
		"?pageSize=101":                "pageSize: must be a number from 1 to 100",
		"?pageSize=many":               "pageSize: must be a number from 1 to 100",
		"?pageSize=":                   "pageSize: must not be empty",
		"?pageSize=1&pageSize=2":       "pageSize: must be given once",
		"?pageToken=a&pageToken=b":     "pageToken: must be given once",
		"?inputMode=text":              `inputMode: "text" is not a media type such as text/plain or text/*`,
		"?outputMode=a/b&outputMode=/": `outputMode: "/" is not a media type`,
	} {
		r := do(t, s, http.MethodGet, "/agents"+query, "")
		require.Equal(t, http.StatusBadRequest, r.StatusCode, query)
		require.Equal(t, "Bad Request", r.member(t, "error"))
		require.Contains(t, r.member(t, "detail"), says, query)
		require.Empty(t, r.Header.Get("ETag"))
	}
}
