module github.com/holdfast-a2a/holdfast/interop/servers/go-2

go 1.26

require github.com/a2aproject/a2a-go/v2 v2.4.0

require (
	github.com/google/uuid v1.6.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
)
