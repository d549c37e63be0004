package card

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Rendering is a shape of the document.
type Rendering uint8

// The renderings.
const (
	RenderSuperset Rendering = iota // for clients of 0.3 and 1.0 that do not state a version
	RenderStrict                    // for 1.0
	RenderLegacy                    // for 0.1, 0.2 and 0.3
	RenderBinary                    // for 0.3 over gRPC
	RenderEither                    // for 0.3 over HTTP+JSON
)

// ForReader returns the rendering for a reader that names a version in A2A-Version. Without a
// version, or with an unknown one, it returns other.
func ForReader(version string, other Rendering) Rendering {
	switch {
	case version == "1", strings.HasPrefix(version, "1."):
		return RenderStrict
	case strings.HasPrefix(version, "0."):
		return RenderSuperset
	}
	return other
}

// Binding is a binding as cards announce it.
type Binding struct {
	Name     string
	Versions []string // versions that it speaks and that cards announce
	// Address returns where the binding serves an agent. below is the agent's URL, without a slash
	// at the end. The URL is "" for an agent that the binding does not serve.
	Address func(agent, below string) (url, tenant string)
}

// Options configures a Publisher.
type Options struct {
	Bindings []Binding // the preferred one first
	// Signer signs the documents that 1.0 reads. It needs KeySetURL; without either, documents are
	// unsigned.
	Signer    Signer
	KeySetURL string
}

// Publisher renders cards and caches the documents. It is safe for concurrent use.
type Publisher struct {
	opt  Options
	mu   sync.Mutex
	kept map[place]*Document
}

// place is the cache key of a document, besides the card itself.
type place struct {
	agent, below string
	revision     int
	rendering    Rendering
	shown        string
	key          string
}

// keptAtMost bounds the cached documents. Only skills with scopes can lead to so many.
const keptAtMost = 2000

// Document is a card as the server sends it.
type Document struct {
	JSON []byte
	ETag string
}

// NewPublisher makes a publisher.
func NewPublisher(o Options) *Publisher { return &Publisher{opt: o, kept: map[place]*Document{}} }

// Interfaces lists where an agent is served, the newest version first.
func (p *Publisher) Interfaces(agent, below string) []Interface {
	var versions []string
	for _, b := range p.opt.Bindings {
		versions = append(versions, b.Versions...)
	}
	slices.Sort(versions)
	slices.Reverse(versions)
	var out []Interface
	for _, version := range slices.Compact(versions) {
		for _, b := range p.opt.Bindings {
			if slices.Contains(b.Versions, version) {
				url, tenant := b.Address(agent, below)
				if url == "" {
					continue
				}
				out = append(out, Interface{Binding: b.Name, Version: version, URL: url, Tenant: tenant})
			}
		}
	}
	return out
}

// Render renders a card of an agent whose URL is below. Cards of one revision differ only in the
// skills that For omits.
//
// fixed says that the operator has set below. A URL that follows the request is neither signed nor
// cached. Otherwise anybody could have the server sign a foreign address for its agents, and fill
// its memory.
func (p *Publisher) Render(agent string, c *Card, below string, r Rendering, fixed bool) (*Document, error) {
	if !fixed {
		return p.render(agent, c, below, r, nil)
	}
	at := place{agent: agent, below: below, revision: c.Revision, rendering: r, shown: c.shown}
	var sign Sign
	if p.opt.Signer != nil && p.opt.KeySetURL != "" && (r == RenderStrict || r == RenderSuperset) {
		at.key = p.opt.Signer.KeyID()
		sign = signWith(p.opt.Signer, p.opt.KeySetURL)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if kept := p.kept[at]; kept != nil {
		return kept, nil
	}
	d, err := p.render(agent, c, below, r, sign)
	if err == nil {
		p.forget(at)
		if len(p.kept) >= keptAtMost {
			clear(p.kept)
		}
		p.kept[at] = d
	}
	return d, err
}

// Forget drops the documents of an agent, whose cards have changed.
func (p *Publisher) Forget(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.kept, func(at place, _ *Document) bool { return at.agent == agent })
}

// forget drops documents that an older key has signed.
func (p *Publisher) forget(now place) {
	for at := range p.kept {
		if at.key != now.key && at.agent == now.agent && at.below == now.below && at.rendering == now.rendering {
			delete(p.kept, at)
		}
	}
}

func (p *Publisher) render(agent string, c *Card, below string, r Rendering, sign Sign) (*Document, error) {
	interfaces := p.Interfaces(agent, below)
	var (
		document []byte
		err      error
	)
	switch r {
	case RenderStrict:
		document, err = Strict(c, interfaces, sign)
	case RenderLegacy:
		document, err = Legacy(c, interfaces)
	case RenderBinary:
		document, err = Binary(c, interfaces)
	case RenderEither:
		document, err = Either(c, interfaces)
	default:
		document, err = Superset(c, interfaces, sign)
	}
	if err != nil {
		return nil, fmt.Errorf("card of %s: %w", agent, err)
	}
	return &Document{document, ETag(document)}, nil
}
