// Package load makes tasks on an A2A server and measures how they fare: so many in flight, each
// followed to its end before the next one starts (a closed loop). bench/ measures this repository
// with it, and the verb bench an installation.
//
// It speaks just enough HTTP/1.1 and A2A 0.3 for that, because load often shares its cores with
// what it measures, and net/http would take as much of them as the server.
package load
