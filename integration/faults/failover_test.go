package faults

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/a2atest"
	"github.com/holdfast-a2a/holdfast/internal/clustertest"
	"github.com/holdfast-a2a/holdfast/internal/judgetest"
	"github.com/holdfast-a2a/holdfast/internal/store/pgproxytest"
	"github.com/holdfast-a2a/holdfast/internal/store/storetest"
	"github.com/holdfast-a2a/holdfast/internal/waittest"
)

// pair is a primary with a streaming standby, each behind a proxy, and two replicas.
type pair struct {
	t                testing.TB
	primary, standby *storetest.PrivateServer
	first, second    *pgproxytest.Proxy
	replicas         []*clustertest.Replica
}

// newPair starts two replicas whose URL names both servers, or one name that leads to the primary.
func newPair(t *testing.T, name *clustertest.Proxy) *pair {
	t.Helper()
	p := &pair{t: t}
	p.primary = storetest.Server(t, map[string]string{"fsync": "off"})
	p.standby = p.primary.Standby()
	p.first, p.second = pgproxytest.New(t, p.primary.URL), pgproxytest.New(t, p.standby.URL)
	db := storetest.Hosts(p.first.URL, p.second.URL)
	if name != nil {
		name.Lead(hostOf(p.first))
		db = strings.Replace(p.first.URL, hostOf(p.first), name.Addr, 1)
	}
	config := clustertest.Settings + fmt.Sprintf("  - {name: remote, executor: {kind: http, http: {url: \"http://%s/\"}}}\n", newAgent(t).addr)
	p.replicas = clustertest.Together(t, clustertest.Options{Name: "a", DB: db, Config: config}, clustertest.Options{Name: "b", DB: db, Config: config})
	return p
}

func hostOf(p *pgproxytest.Proxy) string {
	u, err := url.Parse(p.URL)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// load starts clients that talk to both replicas.
func (p *pair) load(seed uint64) *load {
	p.t.Helper()
	l := newLoad(p.t, seed, p.replicas[0].URL, p.replicas[1].URL)
	l.start(6)
	p.progress(l)
	return l
}

// progress waits until clients have finished some operations.
func (p *pair) progress(l *load) {
	p.t.Helper()
	want := l.done.Load() + 12
	waittest.Eventually(p.t, "clients make progress", func() error {
		done := l.done.Load()
		return waittest.Unless(done >= want, "%d operations remain", want-done)
	})
}

// judge compares the answers that clients got with the log on a server.
func (p *pair) judge(l *load, on *storetest.PrivateServer) {
	p.t.Helper()
	for _, r := range p.replicas {
		r.WaitReady()
	}
	resume := l.pause()
	defer resume()
	require.NoError(p.t, l.troubles())
	require.NoError(p.t, judgetest.Database{URL: on.URL}.CheckAtRest(context.Background(), l.ledger))
}

func TestFailover(t *testing.T) {
	t.Parallel()
	t.Run("killed primary of a synchronous standby, which returns as a standby", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, nil)
		p.primary.Replicate()
		l := p.load(1)
		p.primary.Crash()
		p.standby.Promote()
		p.progress(l)
		p.judge(l, p.standby)

		// The first host of the URL accepts connections again, and refuses writes.
		p.primary.StartAsStandby()
		p.second.CutAll()
		p.progress(l)
		p.judge(l, p.standby)
	})
	t.Run("silent primary", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, nil)
		p.primary.Replicate()
		l := p.load(2)
		p.first.Stall(true)
		defer p.first.Stall(false)
		p.standby.Promote()
		p.progress(l)
		p.judge(l, p.standby)
	})
	t.Run("name that moves while connections stay", func(t *testing.T) {
		t.Parallel()
		name := clustertest.NewProxy(t, "")
		p := newPair(t, name)
		p.primary.Replicate()
		l := p.load(3)
		resume := l.pause() // a switchover waits for the standby
		p.primary.Exec("ALTER SYSTEM SET default_transaction_read_only = on")
		p.primary.Exec("SELECT pg_reload_conf()")
		p.standby.Promote()
		name.Lead(hostOf(p.second))
		resume()
		p.progress(l)
		p.judge(l, p.standby)
	})
	t.Run("standby that lags", func(t *testing.T) {
		t.Parallel()
		p := newPair(t, nil)
		a, b := p.replicas[0], p.replicas[1]
		s := a.Stream(a2atest.V03, a2atest.Say("chunks=400 size=32 delay=20ms"))
		seen := s.Take(5)
		taskID := seen[0].Task()
		waittest.Eventually(t, "the standby has the task", func() error {
			return waittest.Unless(p.standby.Count("SELECT count(*)::int FROM holdfast.task_events WHERE seq >= 5") > 0, "it lags")
		})
		p.standby.StopStreaming()
		s.Take(150)
		lost := b.Send(a2atest.V03, a2atest.Say("echo:lost")).Task()
		p.primary.Crash()
		p.standby.Promote()

		// The stream has shown events that no longer exist.
		_, err := s.UntilEnd()
		require.ErrorIs(t, err, io.EOF, "the stream ends, and the client resumes")
		again := b.Resume(taskID, s.Last).Rest()
		for _, r := range p.replicas {
			r.WaitReady()
		}
		require.Equal(t, "task", again[0].Kind, "from a snapshot")
		require.Equal(t, "completed", a2atest.Last(again).State())
		late := b.ResumeAt(taskID, s.LastID).Rest()
		require.Equal(t, "task", late[0].Kind, "a snapshot, although another event has the number of the lost one")
		require.Equal(t, -32001, a.Ask("tasks/get", object{"id": lost}).Error.Code)
		require.Equal(t, "completed", a.Send(a2atest.V03, a2atest.Say("echo:x")).State())
		clustertest.OpenDB(t, p.standby.URL).Sound()
	})
}

// Only one replica cannot reach PostgreSQL. Its streams would be silent for as long as that lasts.
func TestReplicaCutOffFromDatabaseEndsStreams(t *testing.T) {
	t.Parallel()
	db := clustertest.NewDB(t)
	proxy := pgproxytest.New(t, db.URL)
	both := clustertest.Together(t,
		clustertest.Options{Name: "a", DB: proxy.URL, Config: clustertest.Settings}, clustertest.Options{Name: "b", DB: db.URL, Config: clustertest.Settings})
	a, b := both[0], both[1]
	s := a.Stream(a2atest.V03, a2atest.Say("chunks=200 size=32 delay=20ms"))
	seen := s.Take(10)
	proxy.Refuse(true)
	proxy.CutAll()
	more, err := s.UntilEnd()
	require.ErrorIs(t, err, io.EOF, "the stream ends without an error")
	seen = append(seen, more...)
	require.False(t, a2atest.Last(seen).Final)
	seen = append(seen, b.Resume(seen[0].Task(), s.Last).Rest()...)
	require.Equal(t, "completed", a2atest.Last(seen).State())
	require.Equal(t, db.Seqs(seen[0].Task()), a2atest.Seqs(seen))
	proxy.Refuse(false)
	a.WaitReady()
}
