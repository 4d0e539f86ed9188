# Built by docker, podman or buildah; scripts/release image builds it where no container engine runs. BASE is an
# image with Python 3.11 or later, of Debian or its like, and BUILD_NEEDS what compiles the parts in C there.
ARG BASE=docker.io/library/python:3.13-slim

# The first stage has the compiler, and makes an environment that the second takes as it is.
FROM ${BASE} AS build
ARG BUILD_NEEDS="gcc libc6-dev"
RUN apt-get update && apt-get install --yes --no-install-recommends ${BUILD_NEEDS} && rm -r /var/lib/apt/lists/*
RUN python3 -m venv /opt/odradek
WORKDIR /source
COPY . .
RUN /opt/odradek/bin/pip install --no-cache-dir --no-compile '.[cluster,oauth]' && /opt/odradek/bin/pip uninstall --yes pip

# The programs of the profiles `demo` and `spark` in docker-compose.yml.
FROM ${BASE} AS demo
RUN apt-get update && apt-get install --yes --no-install-recommends default-jre-headless && rm -r /var/lib/apt/lists/*
WORKDIR /demo
COPY . .
RUN python3 -m venv /opt/odradek && /opt/odradek/bin/pip install --no-cache-dir '.[spark,demo]' && useradd --system --uid 999 odradek
ENV PATH=/opt/odradek/bin:$PATH
USER odradek

FROM ${BASE} AS broker
COPY --from=build /opt/odradek /opt/odradek
ENV PATH=/opt/odradek/bin:$PATH
RUN useradd --system --uid 999 odradek && install -d -o odradek /var/lib/odradek /certificates \
    && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/odradek/lib
USER odradek
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
EXPOSE 9092 9093 9094 9100
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["odradek", "ping", "--bootstrap", "localhost:9092"]
CMD ["odradek", "serve", "--listen", "0.0.0.0:9092", "--data-dir", "/var/lib/odradek"]
