# docker build -t breakbulk .
# docker run -v ./gateway.toml:/etc/breakbulk/gateway.toml:ro -p 8443:8443 breakbulk
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
# The newest toolchain is there already.
RUN rm -f rust-toolchain.toml \
    && cargo build --locked --profile dist --package breakbulk-cli --bin breakbulk

FROM debian:bookworm-slim
# For targets whose certificates are signed by public authorities.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/dist/breakbulk /usr/bin/breakbulk
# What was learned about paths.
ENV XDG_STATE_HOME=/var/lib/breakbulk
RUN mkdir /var/lib/breakbulk && chown 65532:65532 /var/lib/breakbulk
USER 65532:65532
# SIGTERM: listeners are closed, and what was begun is finished; give it the grace time (--time 30).
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/breakbulk"]
CMD ["gateway", "--config", "/etc/breakbulk/gateway.toml"]
