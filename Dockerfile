# The first stage builds wheels, so that the second needs no compiler and no sources.
FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[cluster,oauth]'

# The programs of the profiles `demo` and `spark` in docker-compose.yml.
FROM python:3.13-slim AS demo
RUN apt-get update && apt-get install --yes --no-install-recommends default-jre-headless && rm -r /var/lib/apt/lists/*
WORKDIR /demo
COPY . .
RUN pip install --no-cache-dir '.[spark,demo]' && useradd --system --uid 999 odradek
USER odradek

FROM python:3.13-slim AS broker
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels 'odradek[cluster,oauth]' && rm -r /wheels \
    && useradd --system --uid 999 odradek \
    && install -d -o odradek /var/lib/odradek /certificates
USER odradek
VOLUME /var/lib/odradek
EXPOSE 9092 9093 9094
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["odradek", "ping", "--bootstrap", "localhost:9092"]
CMD ["odradek", "serve", "--listen", "0.0.0.0:9092", "--data-dir", "/var/lib/odradek"]
