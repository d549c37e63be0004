# syntax=docker/dockerfile:1
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
# Shown by `holdfast version`, in metrics and in the log: --build-arg VERSION=v1.2.3
ARG VERSION= COMMIT= COMMIT_TIME=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -o /out/holdfast -ldflags="-s -w \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedVersion=$VERSION \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedCommit=$COMMIT \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedTime=$COMMIT_TIME" ./cmd/server

# Certificates, a user that is not root, and nothing else: agents that are commands bring their own image.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/holdfast /holdfast
USER 65532:65532
# The admin port must be reachable from the balancer's health checks. It serves these alone until there is an auth.schemes
# to ask operators by.
ENV HOLDFAST_LISTEN=:8080 HOLDFAST_GRPC_LISTEN=:8081 HOLDFAST_ADMIN_LISTEN=:9090
EXPOSE 8080 8081 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/holdfast", "ready"]
ENTRYPOINT ["/holdfast"]
CMD ["serve"]
