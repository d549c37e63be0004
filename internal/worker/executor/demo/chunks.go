package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/worker/executor"
)

const chunksArtifact = "chunks"

// stream is a parsed chunks command.
type stream struct {
	count int
	size  int
	delay time.Duration
}

func chunks(ctx context.Context, run *executor.Run, out executor.Emitter, command string) error {
	s, err := parseStream(command)
	if err != nil {
		return err
	}
	next := 0
	if run.Attempt > 1 { // not Try: an attempt that was handed back does not count there, but may have written
		if next, err = nextIndex(ctx, run); err != nil {
			return err
		}
	}
	text := make([]byte, 0, max(s.size, headerSize))
	for i := next; i < s.count; i++ {
		if i > next {
			if err := pause(ctx, s.delay); err != nil {
				return err
			}
		}
		text = appendChunk(text[:0], i, s.size)
		err := out.Artifact(ctx, executor.Chunk{
			Artifact: task.Artifact{ID: chunksArtifact, Name: chunksArtifact, Parts: []task.Part{task.Text(string(text))}},
			Append:   i > 0,
			Last:     i == s.count-1,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func parseStream(command string) (stream, error) {
	var s stream
	for _, field := range strings.Fields(command) {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch name {
		case "chunks":
			s.count, err = number(name, value, 1, maxChunks)
		case "size":
			s.size, err = number(name, value, 0, maxChunkSize)
		case "delay":
			s.delay, err = duration(name, value)
		default:
			err = misused("%s: unknown; write a stream as chunks=N size=B delay=Dms", field)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func number(name, value string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < lowest || n > highest {
		return 0, misused("%s=%s: not a number from %d to %d", name, value, lowest, highest)
	}
	return n, nil
}

// nextIndex returns the index after the last chunk that earlier attempts stored.
func nextIndex(ctx context.Context, run *executor.Run) (int, error) {
	events, err := run.Memory.Earlier(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the earlier chunks: %w", err)
	}
	for i := len(events) - 1; i >= 0; i-- {
		a := events[i].Artifact
		if a == nil || a.ID != chunksArtifact || len(a.Parts) == 0 {
			continue
		}
		text := a.Parts[len(a.Parts)-1].Text
		last, err := strconv.Atoi(text[:min(indexDigits, len(text))])
		if err != nil {
			return 0, fmt.Errorf("the last stored chunk has no index: %w", err)
		}
		return last + 1, nil
	}
	return 0, nil
}

const (
	indexDigits = 8
	headerSize  = indexDigits + len(" 1700000000000000000 ")
)

// appendChunk writes index, time and filler. The filler differs from chunk to
// chunk, so that compression does not flatter a benchmark.
func appendChunk(b []byte, index, size int) []byte {
	for unit := 10_000_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+index/unit%10))
	}
	b = append(b, ' ')
	b = strconv.AppendInt(b, time.Now().UnixNano(), 10)
	b = append(b, ' ')
	for at := index * 7919 % len(filler); len(b) < size; at = 0 {
		b = append(b, filler[at:min(len(filler), at+size-len(b))]...)
	}
	return b
}

// filler is pseudo-random text. It is made once, because making it per chunk would cost more than sending it.
var filler = func() []byte {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	b := make([]byte, 64<<10)
	x := uint64(0x9E3779B97F4A7C15)
	for i := range b {
		// xorshift64 needs no seed and gives the same text on every machine.
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = alphabet[x>>58]
	}
	return b
}()
