package limit

// messageFactor is the bytes of memory for each byte of a message: its row, the message, and what the
// executor makes of it.
const messageFactor = 3

// Messages returns the size of the large messages that fit now. A small one never waits for the memory
// of large ones.
func (b *Budget) Messages() int64 { return max(b.Free()/messageFactor, SmallBytes) }

// Hold holds the memory of a message of n bytes that a claim has brought, until release. If it is large
// and does not fit, it is beside the budget.
func (b *Budget) Hold(n int64) (release func()) {
	if b == nil {
		return func() {}
	}
	n *= messageFactor
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > SmallBytes*messageFactor && b.used+n > b.size {
		b.beside += n
		return func() { b.addBeside(-n) }
	}
	b.grant("", n)
	return func() { b.Give("", n) }
}

// Crowded reports whether a message is beside the budget. Then only those that fit may follow.
func (b *Budget) Crowded() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.beside > 0
}
