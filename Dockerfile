# One image for all roles: the workers, the agents and the command line.
FROM python:3.12-slim AS build
WORKDIR /src
RUN pip install --no-cache-dir build
COPY pyproject.toml README.md LICENSE SOURCES.md ./
COPY rainbow rainbow
COPY workers workers
COPY agents agents
RUN python -m build --wheel --outdir /dist

FROM python:3.12-slim
RUN useradd --system --create-home --uid 1000 rainbow \
    && mkdir -p /etc/rainbow /etc/rainbow-tokens /var/lib/rainbow-agent /usr/share/rainbow \
    && chown rainbow: /etc/rainbow /etc/rainbow-tokens /var/lib/rainbow-agent
COPY --from=build /dist/*.whl /tmp/
RUN wheel=$(echo /tmp/*.whl) && pip install --no-cache-dir "${wheel}[scheduler,metrics]" && rm /tmp/*.whl
COPY rainbow/demo/data /usr/share/rainbow
COPY docs/deploy/compose-keys /usr/local/bin/compose-keys
USER rainbow
CMD ["rainbow", "--help"]
