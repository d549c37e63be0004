package openai

import (
	"context"
	"encoding/base64"
	"fmt"
	"mime"
	nethttp "net/http"
	"net/url"
	"path"
	"strings"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

// message is a message as the API takes it.
type message struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"` // a string, a []content, or nil
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`

	thoughts []thought // only of the Responses API
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// content is a part of a message.
type content struct {
	Type  string `json:"type"`
	Text  string `json:"text,omitempty"`
	Image *struct {
		URL string `json:"url"`
	} `json:"image_url,omitempty"`
	Audio *audio `json:"input_audio,omitempty"`
	File  *file  `json:"file,omitempty"`
}

type audio struct {
	Data   string `json:"data"`
	Format string `json:"format"`
}

type file struct {
	Filename string `json:"filename"`
	Data     string `json:"file_data"`

	url string // instead of data; only of the Responses API
}

// The roles of the API.
const (
	roleSystem    = "system"
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
)

// conversation returns what the model is told: the system prompt, what was said before, and the message to answer.
func (a *agent) conversation(ctx context.Context, run *executor.Run) ([]message, error) {
	var all []message
	if a.opts.System != "" {
		all = append(all, message{Role: roleSystem, Content: a.opts.System})
	}
	before, err := a.opts.History.Read(ctx, run)
	if err != nil {
		return nil, err
	}
	var turns []turn
	for i := range before {
		if s := &before[i]; !shownReasoning(s) {
			turns = a.addTurn(turns, s.Role(), remembered(s))
		}
	}
	turns = a.addTurn(turns, task.RoleUser, run.Message.Parts)
	for i := range turns {
		all = append(all, turns[i].message())
	}
	return all, nil
}

// remembered returns the content of an entry. The model is told that a large one was there.
func remembered(s *executor.Said) []task.Part {
	if s.Left > 0 {
		return []task.Part{task.Text(fmt.Sprintf("[%d bytes are left out here]", s.Left))}
	}
	return s.Parts()
}

// shownReasoning reports whether an entry is the reasoning of an earlier answer, which models do not take back.
func shownReasoning(s *executor.Said) bool {
	return s.Artifact != nil && s.Artifact.Name == reasoningName && strings.HasPrefix(s.Artifact.ID, reasoningName+"-")
}

// turn is what one side said without a break. Some models refuse a conversation whose roles do not alternate.
type turn struct {
	role  string
	parts []content
}

// addTurn adds parts to a conversation.
func (a *agent) addTurn(turns []turn, role task.Role, parts []task.Part) []turn {
	name := roleUser
	if role == task.RoleAgent {
		name = roleAssistant
	}
	var said []content
	for i := range parts {
		p := &parts[i]
		if a.opts.Responses && name == roleUser && p.Kind == task.PartURL && strings.HasPrefix(typeOf(p), "application/") {
			said = append(said, content{Type: "file", File: &file{url: p.URL}})
		} else if c, ok := contentOf(p, name); ok {
			said = append(said, c)
		}
	}
	if len(said) == 0 {
		return turns
	}
	if last := len(turns) - 1; last >= 0 && turns[last].role == name {
		turns[last].parts = append(turns[last].parts, said...)
		return turns
	}
	return append(turns, turn{name, said})
}

// message writes text alone as a string, which every server understands.
func (s *turn) message() message {
	var texts []string
	for i := range s.parts {
		if s.parts[i].Type != "text" {
			return message{Role: s.role, Content: s.parts}
		}
		texts = append(texts, s.parts[i].Text)
	}
	return message{Role: s.role, Content: strings.Join(texts, "\n\n")}
}

func textContent(s string) (content, bool) { return content{Type: "text", Text: s}, s != "" }

// contentOf returns a part in the form of the API. The API has files only from the user; it is told the names of others.
func contentOf(p *task.Part, role string) (content, bool) {
	switch p.Kind {
	case task.PartText:
		return textContent(p.Text)
	case task.PartData:
		return textContent(string(p.Data))
	case task.PartURL:
		if role == roleUser && strings.HasPrefix(typeOf(p), "image/") {
			return imageContent(p.URL), true
		}
		return textContent(strings.TrimSpace(p.Filename + " " + p.URL))
	case task.PartRaw:
		return rawContent(p, role)
	}
	return content{}, false
}

func imageContent(address string) content {
	c := content{Type: "image_url", Image: &struct {
		URL string `json:"url"`
	}{address}}
	return c
}

func rawContent(p *task.Part, role string) (content, bool) {
	mediaType := typeOf(p)
	name := p.Filename
	if name == "" {
		name = "file"
	}
	encoded := func() string { return base64.StdEncoding.EncodeToString(p.Raw) }
	switch {
	case strings.HasPrefix(mediaType, "text/"), mediaType == "application/json", mediaType == "application/xml",
		mediaType == "application/yaml":
		return textContent(name + ":\n" + strings.ToValidUTF8(string(p.Raw), "\uFFFD"))
	case role != roleUser:
		return textContent(fmt.Sprintf("[%s, %s]", name, mediaType))
	case strings.HasPrefix(mediaType, "image/"):
		return imageContent("data:" + mediaType + ";base64," + encoded()), true
	case audioFormats[mediaType] != "":
		return content{Type: "input_audio", Audio: &audio{Data: encoded(), Format: audioFormats[mediaType]}}, true
	default:
		return content{Type: "file", File: &file{Filename: name, Data: "data:" + mediaType + ";base64," + encoded()}}, true
	}
}

var audioFormats = map[string]string{
	"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
}

// typeOf returns the media type of a file without parameters: as declared, by its name, or by its content.
func typeOf(p *task.Part) string {
	name := p.Filename
	if u, err := url.Parse(p.URL); name == "" && err == nil {
		name = u.Path
	}
	for _, declared := range []string{p.MediaType, mime.TypeByExtension(path.Ext(name)), nethttp.DetectContentType(p.Raw)} {
		if t, _, err := mime.ParseMediaType(declared); err == nil {
			return t
		}
	}
	return "application/octet-stream"
}
