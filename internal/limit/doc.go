// Package limit bounds what callers may ask of this replica: requests in a second and open streams, for each caller or address. It
// also bounds their memory. It finds the memory limit of the process and sets that of the Go runtime. Requests take bytes from
// budgets before they hold large data. The store enforces the limits that hold across replicas.
package limit
