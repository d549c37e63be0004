package card

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Rendering is a shape of the document.
type Rendering uint8

// The renderings.
const (
	RenderSuperset Rendering = iota // for clients of 0.3 and 1.0 that do not say which
	RenderStrict                    // for 1.0
	RenderLegacy                    // for 0.1, 0.2 and 0.3
	RenderBinary                    // for 0.3 over gRPC
)

// ForVersion is the rendering that the extended card of a version has.
func ForVersion(version string) Rendering {
	if IsCurrent(version) {
		return RenderStrict
	}
	return RenderLegacy
}

// IsCurrent reports whether an A2A-Version is of the line of 1.0.
func IsCurrent(version string) bool { return version == "1" || strings.HasPrefix(version, "1.") }

// Binding is a binding as cards announce it.
type Binding struct {
	Name     string
	Versions []string // that it speaks and that cards announce
	// Address is where it serves an agent whose URL, without a slash at the end, is below. An
	// agent that it does not serve has none.
	Address func(agent, below string) (url, tenant string)
}

// Options configures a Publisher.
type Options struct {
	Bindings []Binding // the preferred one first
	// Signer signs the documents that 1.0 reads. It needs KeySetURL; without either they are not signed.
	Signer    Signer
	KeySetURL string
}

// Publisher renders cards and remembers what it rendered. Its methods may be called from
// many goroutines.
type Publisher struct {
	opt  Options
	mu   sync.Mutex
	kept map[place]*Document
}

// place is what a document depends on, beside the card.
type place struct {
	agent, below string
	rendering    Rendering
	shown        string
	key          string
}

// keptAtMost bounds how many documents are remembered. There are that many only where skills have scopes.
const keptAtMost = 2000

// Document is a card as it is served.
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

// Render gives the card of an agent whose URL is below. But for what For leaves out, the
// card of an agent must not change.
//
// fixed says that below is the operator's word. One that follows the request would let
// anybody have us sign that an agent of ours is somewhere else, and fill our memory.
func (p *Publisher) Render(agent string, c *Card, below string, r Rendering, fixed bool) (*Document, error) {
	if !fixed {
		return p.render(agent, c, below, r, nil)
	}
	at := place{agent: agent, below: below, rendering: r, shown: c.shown}
	var sign Sign
	if p.opt.Signer != nil && p.opt.KeySetURL != "" && r != RenderLegacy && r != RenderBinary {
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

// forget drops what an older key has signed.
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
	default:
		document, err = Superset(c, interfaces, sign)
	}
	if err != nil {
		return nil, fmt.Errorf("card of %s: %w", agent, err)
	}
	return &Document{document, ETag(document)}, nil
}
