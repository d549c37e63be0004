// Package good has comments that the rules accept.
package good

// Append queues the events of a run. It returns an error when the lease is lost.
const a = "Whoever asks for it gets it anew, which is none."

// Who may call it? The server.
func b() {}
