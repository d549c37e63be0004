package task

import (
	"slices"
	"time"
)

// Caller is the origin of a request. Package auth finds it once for each request; engine and store act for it and record its
// name. The zero value is the anonymous caller of an agent that needs no credential.
type Caller struct {
	// Tenant and Subject own the tasks that the caller creates.
	Tenant  string
	Subject string
	Scopes  []string
	// Method is the kind of credential that the caller has shown: api_key, basic, jwt or mtls. It is MethodOperator for
	// an operator, MethodAgent for an agent that acts for its caller, and "" for none.
	Method string
	// Credential names the credential in the audit log: its scheme and its id in that scheme. It is not secret.
	Credential string
	// Address is the remote address of the connection, or "" if unknown.
	Address string
	// Reason says why an operator acts, for the audit log.
	Reason string
}

// MethodOperator is the method of an operator, on the command line or at the admin address.
const MethodOperator = "operator"

// MethodAgent is the method of an agent that has called another one for the owner of its task.
const MethodAgent = "agent"

// Has reports whether the caller has a scope. Every caller has the empty one.
func (c *Caller) Has(scope string) bool {
	return scope == "" || slices.Contains(c.Scopes, scope)
}

// Owner returns the caller as the owner of tasks.
func (c *Caller) Owner() Owner { return Owner{c.Tenant, c.Subject} }

// Owner owns a task. The limits of a request count for its owner.
type Owner struct{ Tenant, Subject string }

// Session is what a replica needs to verify the session of an operator's browser.
type Session struct {
	Hash   []byte // of its secret
	Scheme string // that admitted the operator
	KeyID  string // the API key that opened it; "": none
	Owner  Owner
	Scopes []string
	// Revoked says that the key that opened it is revoked.
	Revoked   bool
	Left      time.Duration // until it expires; expired if not positive
	ExpiresAt time.Time
}

// Key is what a replica needs to verify an API key that a client shows.
type Key struct {
	Hash    []byte
	Owner   Owner
	Scopes  []string
	Revoked bool
	Left    time.Duration // until it expires; expired if not positive
	// UseUnrecorded says that the use of the key still has to be recorded.
	UseUnrecorded bool
}
