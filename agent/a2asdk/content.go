package a2asdk

import (
	"crypto/sha256"
	"encoding/json"
	"hash"

	"github.com/holdfast-a2a/holdfast/agent"
)

// content identifies what an artifact holds, without keeping it.
type content struct {
	about string // name and the like
	parts hash.Hash
	text  bool // the last part is text, which a further text continues
}

// contentOf returns the content of a whole artifact.
func contentOf(a *agent.Artifact) *content {
	about := *a
	about.ID, about.Parts = "", nil
	c := &content{parts: sha256.New()}
	c.about = string(encode(about))
	c.add(a)
	return c
}

// add appends the parts of a chunk. Text that chunks continue is one part of the stored artifact.
func (c *content) add(a *agent.Artifact) {
	for i := range a.Parts {
		p := a.Parts[i]
		plain := p.Kind == agent.KindText && p.Filename == "" && p.Metadata == nil
		if plain && c.text {
			c.parts.Write([]byte(p.Text))
			continue
		}
		text := p.Text
		if plain {
			p.Text = ""
		}
		c.parts.Write([]byte{0})
		c.parts.Write(encode(p))
		if plain {
			c.parts.Write([]byte(text))
		}
		c.text = plain
	}
}

func (c *content) equal(other *content) bool {
	return c != nil && c.about == other.about && string(c.parts.Sum(nil)) == string(other.parts.Sum(nil))
}

// encode writes strings, bytes and JSON that was valid before, so it does not fail.
func encode(v any) []byte {
	data, _ := json.Marshal(v)
	return data
}
