// Package limit bounds what one caller, or one address, may ask of this replica, its requests a second and its open streams, and
// what all of them may hold of its memory: it finds the process's limit, tells the runtime, and gives out budgets of bytes. The
// store enforces the limits that hold across replicas.
package limit
