module github.com/holdfast-a2a/holdfast/interop/clients/go-common

go 1.26
