package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"
)

// supervisor is the process that started this one and wants to know its state: systemd, for a unit with Type=notify. The
// protocol is that of sd_notify(3): a datagram for each message. Nobody hears the zero value.
type supervisor struct {
	socket   net.Conn
	watchdog time.Duration // it ends a process that is silent for this long; 0: it does not
}

// newSupervisor connects to the supervisor that the environment names.
func newSupervisor(env func(string) string) (supervisor, error) {
	address := env("NOTIFY_SOCKET")
	if address == "" {
		return supervisor{}, nil
	}
	// Go also writes the abstract address @name so.
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return supervisor{}, fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	s := supervisor{socket: socket}
	if pid := env("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(env("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			s.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	return s, nil
}

func (s supervisor) tell(message string) error {
	if s.socket == nil {
		return nil
	}
	_, err := s.socket.Write([]byte(message))
	return err
}

// watch tells the supervisor until ctx ends that the process is alive, and nothing while it is stuck.
func (s supervisor) watch(ctx context.Context, stuck func() bool, warn func(msg string, args ...any)) error {
	if s.watchdog == 0 {
		return nil
	}
	tick := time.NewTicker(s.watchdog / 3)
	defer tick.Stop()
	for {
		if stuck() {
			warn("the lease's loop is stuck; not telling the watchdog that this process is alive", "watchdog", s.watchdog.String())
		} else if err := s.tell("WATCHDOG=1"); err != nil {
			warn("cannot tell the watchdog that this process is alive", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s supervisor) close() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
}
