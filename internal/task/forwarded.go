package task

// Forwarded are headers of a client's request that go to its agent, by canonical name. They may be credentials: no log, event
// or error has them, and the store seals them.
type Forwarded map[string]string
