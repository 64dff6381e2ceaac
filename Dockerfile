# docker build --build-arg VERSION=v1.2.3 -t fencegate .
# Images are pinned by tag, for people, and by digest, which decides.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d AS build
WORKDIR /src
COPY go.mod go.sum ./
# Modules of the same commit, which go.mod names.
COPY lockclient lockclient
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=""
# The commit that "fencegate version" shows: there is no .git in the build.
ARG COMMIT=""
# docker buildx sets these for the platforms that it builds for; empty: that of the machine.
ARG TARGETOS TARGETARCH
ENV GOOS=$TARGETOS GOARCH=$TARGETARCH
# As `make build` does it, and without cgo: the binary needs nothing of the image that it runs in.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
    -o /fencegate ./cmd/fencegate

FROM scratch
# For databases whose TLS certificate a public authority has signed.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /fencegate /fencegate
# A number, so that Kubernetes can see that it is not root. Nothing is ever written: run it with a read-only filesystem.
USER 65532:65532
# On this address it needs authentication, or FENCEGATE_INSECURE_NO_AUTH=true where nobody else reaches the network.
ENV FENCEGATE_LISTEN=0.0.0.0:8080
EXPOSE 8080
# That the process answers. Whether it can serve, "health --ready" asks: an orchestrator that restarts what is unhealthy must not do so
# since the database is away.
HEALTHCHECK --interval=10s --timeout=4s --start-period=30s --retries=3 CMD ["/fencegate", "health"]
ENTRYPOINT ["/fencegate"]
CMD ["serve"]
