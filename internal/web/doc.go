// Package web has what speaks HTTP without knowing A2A: bodies that come in and streams of events that go out, the address of a
// client behind proxies, and our own requests to agents and webhooks.
//
// Webhook URLs come from clients, and this server runs inside a network that clients may not reach: without the Guard every client
// could make the server call hosts of that network (server-side request forgery). The address of the connection counts. The dialer
// checks it when it connects, after the name was resolved. A name that resolves to another address a moment later (DNS rebinding)
// changes nothing. The check when a webhook is set uses the same rules; it only tells the client earlier.
//
// Addresses are allowed if IANA's registries list them as globally reachable; code.dny.dev/ssrf keeps that list. It excludes
// loopback, private, shared (CGNAT), link-local, benchmarking, documentation, multicast, reserved and unspecified addresses. It
// also excludes addresses with an IPv4 address inside (mapped, 6to4, Teredo, NAT64).
package web
