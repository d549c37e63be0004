package push_test

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-a2a/holdfast/internal/push"
	"github.com/holdfast-a2a/holdfast/internal/rpc/webhook"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
	"github.com/holdfast-a2a/holdfast/internal/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stamp is a signer whose signatures are all the same.
type stamp struct{}

func (stamp) Sign([]byte, string, string) (string, error) { return "signed", nil }

// sender makes a sender that may reach loopback addresses.
func sender(t *testing.T, o push.SenderOptions) *push.Sender {
	t.Helper()
	if o.Guard == nil {
		o.Guard = web.NewGuard(web.GuardOptions{AllowPrivate: true})
	}
	if o.Signer == nil {
		o.Signer = stamp{}
	}
	o.Headers = webhook.Headers
	o.Timeout, o.ConnectTimeout = cmp.Or(o.Timeout, time.Hour), cmp.Or(o.ConnectTimeout, time.Hour)
	s := push.NewSender(o)
	t.Cleanup(s.Close)
	return s
}

// received is a request as its receiver got it.
type received struct {
	*http.Request
	body []byte
}

// receiver answers with a handler, and hands on the requests.
func receiver(t *testing.T, answer http.HandlerFunc) (url string, got chan received) {
	t.Helper()
	got = make(chan received, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		got <- received{r, body}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

func accept(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// raw listens for connections and hands them to serve, one after the other.
func raw(t *testing.T, serve func(net.Conn)) (url string) {
	t.Helper()
	var listen net.ListenConfig
	l := storetest.Must(listen.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { require.NoError(t, l.Close()); <-done })
	return "http://" + l.Addr().String()
}

// readRequest reads all of a request.
func readRequest(c net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}
