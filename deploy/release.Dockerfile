# The image of a release: as the Dockerfile of the repository, with the binary that GoReleaser has built.
FROM golang:1.26-bookworm AS certificates

FROM scratch
ARG TARGETPLATFORM
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY $TARGETPLATFORM/holdfast /holdfast
USER 65532:65532
ENV HOLDFAST_LISTEN=:8080 HOLDFAST_GRPC_LISTEN=:8081 HOLDFAST_ADMIN_LISTEN=:9090
EXPOSE 8080 8081 9090
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s CMD ["/holdfast", "ready"]
ENTRYPOINT ["/holdfast"]
CMD ["serve"]
