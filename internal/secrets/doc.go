// Package secrets reads values that must not be in a configuration, and seals those that the database keeps.
//
// A Source is a file, which orchestrators mount and replace, or a command, which asks a key service or a vault. Errors name the
// source, and never show the value or what a command wrote to stdout.
//
// Keys protect secrets from a reader of the database who cannot read the environment, by AES-256-GCM. The first key seals and all
// keys open, so that keys can be replaced one by one.
package secrets
