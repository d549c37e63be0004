// Package load creates tasks on an A2A server and measures them. It keeps a fixed number of tasks in flight, and
// follows each to its end before it starts the next one (a closed loop). bench/ measures this repository with it;
// bench/run measures an installation.
//
// It implements only the needed parts of HTTP/1.1 and A2A 0.3. The load often shares its cores with the server that it
// measures, and net/http would use as much CPU as the server.
package load
