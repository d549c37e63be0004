# The images of a release: as the Dockerfile of the repository, with the binary that GoReleaser has built.
FROM golang:1.26-bookworm AS certificates

FROM scratch AS holdfast
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY $TARGETPLATFORM/holdfast /holdfast
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
