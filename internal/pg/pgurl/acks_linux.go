package pgurl

import (
	"strings"
	"syscall"
)

// userTimeout is Linux's TCP_USER_TIMEOUT, which package syscall does not name.
const userTimeout = 0x12

// boundAcks sets how long the kernel waits for acknowledgements before it closes a connection.
func boundAcks(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(ackTimeout.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
