package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/holdfast-a2a/holdfast/internal/rpc/dialect/client"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

// BrokenError is a call over gRPC that got no answer of the server, or lost its stream.
type BrokenError struct{ err error }

func (e *BrokenError) Error() string { return e.err.Error() }
func (e *BrokenError) Unwrap() error { return e.err }

func rpcAddress(named, card string) (string, error) {
	address, err := web.RPCAddress(named, card, "--endpoint")
	if err != nil {
		return "", fmt.Errorf("%s %w", card, err)
	}
	return address, nil
}

// dial prepares the connection, which opens with the first call.
func (c *Client) dial() error {
	u, err := url.Parse(c.url)
	if err != nil {
		return err
	}
	secured := insecure.NewCredentials()
	if u.Scheme == "https" {
		secured = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	c.conn, err = grpc.NewClient("passthrough:///"+web.HostPort(u), grpc.WithTransportCredentials(secured), grpc.WithUserAgent("holdfast"))
	return err
}

// invoke does an operation over gRPC.
func (c *Client) invoke(ctx context.Context, op client.Op, r *client.Request) (*Stream, error) {
	values, err := web.Metadata(r.Header)
	if err != nil {
		return nil, fmt.Errorf("the agent is called over gRPC, %w", err)
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, values))
	rpc, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: op.Streams()}, r.Method,
		grpc.ForceCodecV2(web.Messages{}), grpc.MaxCallRecvMsgSize(maxAnswer))
	if err == nil {
		err = rpc.SendMsg(&r.Body)
	}
	if err == nil {
		err = rpc.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the status says what is wrong
		cancel()
		return nil, fault(err)
	}
	got := false
	next := func() (string, []byte, error) {
		if got && !op.Streams() {
			return "", nil, io.EOF
		}
		var message []byte
		if err := rpc.RecvMsg(&message); err != nil {
			if errors.Is(err, io.EOF) {
				return "", nil, io.EOF
			}
			return "", nil, fault(err)
		}
		got = true
		return "", message, nil
	}
	return &Stream{client: c, op: op, next: next, close: cancel}, nil
}

// fault returns the error of a call that failed.
func fault(err error) error {
	s := grpcstatus.Convert(err)
	switch s.Code() {
	case codes.Canceled:
		return context.Canceled
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted:
		return &BrokenError{client.StatusError(s)}
	default:
		return client.StatusError(s)
	}
}
