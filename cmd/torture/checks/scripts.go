package checks

import (
	"fmt"
	"time"
)

// Scripts are the words that the agent behind the server understands. All languages have the same acts:
//
//   - echo: complete with an artifact that is the text;
//   - chunks: complete with one artifact of n chunks, appended one by one, each of size bytes, which begins with its index from 0
//     in eight digits, and a pause before each but the first;
//   - ask: ask for input; the next message of the task gets an artifact that contains it, and completes the task unless it asks again;
//   - sleep: work for a while, then complete;
//   - hold: work until canceled.
//
// The script is the first part of the message. A second part is a mark, which the agent ignores.
type Scripts struct {
	Name                           string
	echo, ask, sleep, stream, hold string // formats
}

// Languages are the languages of scripts that agents may understand: that of Holdfast's demo agent, and the contract of
// docs/torture.md for agents of others.
var Languages = []Scripts{
	{Name: "holdfast-demo", echo: "echo:%s", stream: "chunks=%d size=%d delay=%dms", ask: "ask:%s", sleep: "sleep=%dms", hold: "hold"},
	{Name: "contract", echo: "torture echo %s", stream: "torture chunks %d %d %d", ask: "torture ask %s", sleep: "torture sleep %d", hold: "torture hold"},
}

// chunkSize is the size of all chunks, in bytes. The demo agent writes index and time into the first 29.
const chunkSize = 64

func (s *Scripts) chunks(n int, delay time.Duration) string {
	return fmt.Sprintf(s.stream, n, chunkSize, delay.Milliseconds())
}

// large is chunks without pauses.
func (s *Scripts) large(n, size int) string { return fmt.Sprintf(s.stream, n, size, 0) }

func (s *Scripts) echoes(text string) string     { return fmt.Sprintf(s.echo, text) }
func (s *Scripts) questions(text string) string  { return fmt.Sprintf(s.ask, text) }
func (s *Scripts) asks() string                  { return s.questions("which city?") }
func (s *Scripts) sleeps(d time.Duration) string { return fmt.Sprintf(s.sleep, d.Milliseconds()) }
