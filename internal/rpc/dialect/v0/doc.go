// Package v0 is the common part of the 0.x versions on JSON-RPC: parts, files and roles. These
// versions differ in the name of a part's discriminator, and each accepts both names on input.
package v0
