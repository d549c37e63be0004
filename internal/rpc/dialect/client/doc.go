// Package client is A2A as a client speaks it: requests from domain values, and domain values from answers, in every
// version, over JSON-RPC and over HTTP+JSON. Like a codec it is pure: bytes to values and back, no network, no clock.
//
// Requests are written strictly in the chosen version. Answers are read leniently: servers mix the shapes of versions,
// and most members have one meaning in all of them.
package client
