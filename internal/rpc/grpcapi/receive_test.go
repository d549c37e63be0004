package grpcapi_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-a2a/holdfast/internal/memory"
	"github.com/holdfast-a2a/holdfast/internal/rpc/dispatch"
	"github.com/holdfast-a2a/holdfast/internal/rpc/grpcapi"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// within is an operation's memory.
func within(b *memory.Budgets) func(*dispatch.Options) {
	return func(o *dispatch.Options) { o.Memory = b }
}

func TestFullBudgetRefusesLargeMessages(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	budgets.Requests.Patience = time.Millisecond
	limited := make(chan string, 10)
	s := serve(t, recorder().As, grpcapi.Options{}, within(budgets), func(o *dispatch.Options) {
		o.Observer.Limited = func(_, by string) { limited <- by }
	})
	size := budgets.Requests.Stat().Size
	require.True(t, budgets.Requests.TryTake("another", size))
	large := send10(strings.Repeat("x", 1<<20))
	_, err := s.young.SendMessage(with(t), large)
	f := faultOf(t, err)
	require.Equal(t, codes.Unavailable, f.Code())
	require.Equal(t, 2*time.Second, f.retry)
	require.Equal(t, "memory", <-limited)
	// Small requests do not compete with large ones.
	_, err = s.young.GetTask(with(t), &pb10.GetTaskRequest{Id: "t-1"})
	require.NoError(t, err)
	budgets.Requests.Give("another", size)
	_, err = s.young.SendMessage(with(t), large)
	require.NoError(t, err)
	budgets.Each(func(name string, b *memory.Budget) {
		waittest.Eventually(t, name, func() error { return waittest.Unless(b.Stat().Used == 0, "bytes are in use") })
	})
}

// TestMessageTakesMemoryBeforeItArrives speaks HTTP/2, because a client's library has no half messages.
func TestMessageTakesMemoryBeforeItArrives(t *testing.T) {
	t.Parallel()
	budgets := memory.New(64 << 20)
	s := serve(t, recorder().As, grpcapi.Options{}, within(budgets))
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.addr)
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(waittest.Patience)))
	_, err = c.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	framer := http2.NewFramer(c, c)
	require.NoError(t, framer.WriteSettings())
	var block strings.Builder
	head := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":authority", s.addr},
		{":path", "/" + service10 + "SendMessage"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		require.NoError(t, head.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
	}
	require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true}))

	const size = 8 << 20
	require.NoError(t, framer.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{0}, size)))
	waittest.Eventually(t, "the call", func() error { return waittest.Unless(budgets.Small.Stat().Used > 0, "no bytes in use") })
	require.Zero(t, budgets.Requests.Stat().Used, "an announced message holds nothing")
	// The client fills the window, and sends the rest of what is small when the server has read that.
	data := make([]byte, memory.Small)
	for len(data) > 5 {
		n := min(len(data)-5, 16<<10)
		require.NoError(t, framer.WriteData(1, false, data[:n]))
		data = data[n:]
	}
	for {
		f, err := framer.ReadFrame()
		require.NoError(t, err)
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 1 {
			break
		}
	}
	require.NoError(t, framer.WriteData(1, false, data))
	waittest.Eventually(t, "the rest", func() error { return waittest.Unless(budgets.Requests.Stat().Used > size, "bytes are in use") })
	require.NoError(t, c.Close())
	waittest.Eventually(t, "the end", func() error {
		return waittest.Unless(budgets.Requests.Stat().Used == 0 && budgets.Small.Stat().Used == 0, "bytes are in use")
	})
}
