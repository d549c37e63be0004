FROM golang:1.26-bookworm AS source
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .

FROM source AS build
# The context has no .git, so the version comes from outside: holdfast version shows it.
ARG VERSION COMMIT DATE
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false -o /out/holdfast -ldflags="-s -w \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedVersion=$VERSION \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedCommit=$COMMIT \
        -X github.com/holdfast-a2a/holdfast/internal/cli.stampedTime=$DATE" ./cmd/server

FROM source AS build-example-worker
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -o /out/worker -ldflags='-s -w' ./examples/go/connect

# An agent that connects: the profile examples of docker-compose.yml.
FROM scratch AS example-worker
COPY --from=build-example-worker /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build-example-worker /out/worker /worker
USER 65532:65532
ENTRYPOINT ["/worker"]

# Certificates, a user that is not root, and nothing else: agents that are commands bring their own image.
FROM scratch AS holdfast
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/holdfast /holdfast
# Mount your configuration over this file. No variable of the image overrides it.
COPY deploy/image.yaml /etc/holdfast/holdfast.yaml
USER 65532:65532
ENV HOLDFAST_CONFIG=/etc/holdfast/holdfast.yaml
EXPOSE 8080 8081 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/holdfast", "ready"]
ENTRYPOINT ["/holdfast"]
CMD ["serve"]

# A trial in one container: everybody who reaches a port may use the agents and the console, and PostgreSQL is inside.
FROM postgres:17.11-bookworm AS dev
COPY --from=holdfast /holdfast /usr/local/bin/
USER postgres
WORKDIR /var/lib/postgresql/data
ENV HOLDFAST_LISTEN=:8080 HOLDFAST_GRPC_LISTEN=:8081 HOLDFAST_ADMIN_LISTEN=:9090 HOLDFAST_AUTH_NONE=true HOLDFAST_ADMIN_OPEN=true
EXPOSE 8080 8081 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["holdfast", "ready"]
ENTRYPOINT ["holdfast"]
CMD ["serve"]
