package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfast-a2a/holdfast/internal/casetest"
)

// FuzzDecode looks for panics, for line breaks that reach the log, and for events that the decoder accepts and the
// published schema rejects.
func FuzzDecode(f *testing.F) {
	for raw := range validEvents {
		f.Add([]byte(raw))
	}
	for _, c := range casetest.Read(f, invalidEvents) {
		f.Add([]byte(c.In))
	}
	for raw := range unparseableEvents {
		f.Add([]byte(raw))
	}
	schema := compile(f, "event")
	f.Fuzz(func(t *testing.T, raw []byte) {
		given := bytes.Clone(raw)
		e, bad := Decode(raw)
		if !bytes.Equal(given, raw) {
			t.Fatal("the decoder changed its input")
		}
		if _, answerBad := DecodeAnswer(raw); bad == nil && answerBad != nil {
			t.Fatalf("an event is not an answer: %v", answerBad)
		}
		if bad != nil {
			return
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			return // encoding/json accepts a little less than the decoder, for example no numbers beyond float64
		}
		if err := schema.Validate(value); err != nil {
			t.Fatalf("the schema rejects what the decoder accepts: %v", err)
		}
		for _, opaque := range []json.RawMessage{e.Checkpoint, e.Chunk.Metadata, e.Chunk.Artifact.Metadata} {
			if bytes.ContainsAny(opaque, "\n\r") {
				t.Fatalf("a line break in %q", opaque)
			}
		}
	})
}

// FuzzStream looks for panics in the readers, and for events that depend on how the bytes arrive.
func FuzzStream(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\n{\"b\":2}\r\n{\"c\""), 3)
	f.Add([]byte(": hi\nid: 1\ndata: {\ndata: }\n\nevent: x\ndata:{}\n\ndata: cut"), 1)
	f.Fuzz(func(t *testing.T, raw []byte, piece int) {
		for _, open := range []func([]byte, int) *Stream{
			func(b []byte, n int) *Stream { return Lines(&pieces{b, n}, 50) },
			func(b []byte, n int) *Stream { return ServerSentEvents(&pieces{b, n}, 50) },
		} {
			whole, cut := collect(open(raw, len(raw))), collect(open(raw, max(1, piece%50)))
			if whole != cut {
				t.Fatalf("in one piece %q, in pieces %q", whole, cut)
			}
		}
	})
}
