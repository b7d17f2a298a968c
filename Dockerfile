# docker build --build-arg VERSION=$(git describe --tags --always) -t shipper .
#
# docker run -v shipper-spool:/var/lib/shipper -v /var/log:/var/log:ro -v ./shipper.yaml:/etc/shipper/shipper.yaml:ro shipper
#
# The spool must be a volume: a container's own layer dies with the container, and with it the lines that Kafka does not have yet.
# Log files must be readable by uid 10001, or start with --user and give that user the spool volume.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/shipper ./cmd/shipper
RUN install -d -m 0700 /out/spool

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/shipper /shipper
COPY --from=build --chown=10001:10001 /out/spool /var/lib/shipper
USER 10001:10001
VOLUME /var/lib/shipper
STOPSIGNAL SIGTERM
ENTRYPOINT ["/shipper"]
CMD ["run", "--config", "/etc/shipper/shipper.yaml"]
