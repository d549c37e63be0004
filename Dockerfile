# syntax=docker/dockerfile:1
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/holdfast ./cmd/server

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
