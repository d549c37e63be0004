//go:build !linux

package pgurl

import "syscall"

// boundAcks does nothing: only Linux has the option.
func boundAcks(string, string, syscall.RawConn) error {
	_ = ackTimeout
	return nil
}
