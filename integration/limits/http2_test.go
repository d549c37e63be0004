package limits

import (
	"bytes"
	"errors"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Pieces of HTTP/2, for clients that no library would be.

// fields are encoded headers: names and values.
func fields(headers ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(headers); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: headers[i], Value: headers[i+1], Sensitive: true}) // to a buffer
	}
	return block.Bytes()
}

// cardBy is a request for a card with a verb.
func cardBy(verb string) []byte {
	return fields(":method", verb, ":scheme", "https", ":authority", "127.0.0.1", ":path", "/.well-known/agent-card.json")
}

// callOf is a gRPC call.
func callOf(method string) []byte {
	return fields(":method", "POST", ":scheme", "http", ":authority", "localhost", ":path", method, "content-type", "application/grpc", "te", "trailers")
}

// preface begins a connection with settings, and acknowledges the server's.
func preface(c net.Conn, own ...http2.Setting) (*http2.Framer, error) {
	f := http2.NewFramer(c, c)
	_, err := io.WriteString(c, http2.ClientPreface)
	return f, errors.Join(err, f.WriteSettings(own...), f.WriteSettingsAck())
}

// settings sets up a connection.
func settings(c net.Conn) error {
	f, err := preface(c)
	if err == nil {
		_, err = f.ReadFrame()
	}
	return err
}

// unfinishedHeaders begins a request with 60 KiB of headers that do not end.
func unfinishedHeaders(c net.Conn) error {
	if err := settings(c); err != nil {
		return err
	}
	const part = 16 << 10
	f, block := http2.NewFramer(c, c), fields("x", string(bytes.Repeat([]byte("~"), 60<<10)))
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:part]})
	for block = block[part:]; len(block) > 0 && err == nil; block = block[min(part, len(block)):] {
		err = f.WriteContinuation(1, false, block[:min(part, len(block))])
	}
	return err
}

// requests begins count requests on a connection. open: their bodies do not end.
func requests(f *http2.Framer, count int, open bool, headers []byte) error {
	for n := range count {
		err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: headers, EndHeaders: true, EndStream: !open})
		if err != nil {
			return err
		}
	}
	return nil
}

// noRoom leaves no room for answers.
var noRoom = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

// unreadAnswers makes count requests, and leaves no room for their answers. It answers pings, which keep the connection open.
func unreadAnswers(count int) func(net.Conn) error {
	return func(c net.Conn) error {
		f, err := preface(c, noRoom)
		if err == nil {
			err = requests(f, count, false, cardBy("GET"))
		}
		go func() {
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					return
				}
				if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
					_ = f.WritePing(true, ping.Data)
				}
			}
		}()
		return err
	}
}

// unreadBody makes a request whose answer has no room, and sends as much of its body as the server takes.
func unreadBody(c net.Conn) error {
	f, err := preface(c, noRoom)
	stream, connection := 65535, 65535
	for answered := false; err == nil && !answered; { // what the server says first is before its answer to our settings
		var frame http2.Frame
		if frame, err = f.ReadFrame(); err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			answered = frame.IsAck()
			if size, ok := frame.Value(http2.SettingInitialWindowSize); ok {
				stream = int(size)
			}
		case *http2.WindowUpdateFrame:
			connection += int(frame.Increment)
		}
	}
	if err == nil {
		err = requests(f, 1, true, cardBy("POST"))
	}
	const frame = 16 << 10
	for sent := frame; err == nil && sent <= min(stream, connection); sent += frame {
		err = f.WriteData(1, false, make([]byte, frame))
	}
	return err
}
