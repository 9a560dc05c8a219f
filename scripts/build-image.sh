#!/usr/bin/env bash
# Build the application's images with docker, podman or buildah, whichever there is.
#
#   scripts/build-image.sh [--repository REGISTRY/faultset/app] [--stores] [--push] [TAG...]
#
# Without a tag, all are built, and the image `pause` beside them. With --stores they have memcached and PostgreSQL
# themselves, which `collect --stores original` runs; name another repository, such as faultset/stores. BUILDER names the tool, BASE another Debian 12 to
# build on, BUILD_OPTIONS more options of the build (`--network host`).
set -euo pipefail
cd "$(dirname "$0")/.."

repository=faultset/app push=no stores=no
while [[ ${1:-} == --* ]]; do
  case $1 in
    --repository) repository=$2 && shift 2 ;;
    --push) push=yes && shift ;;
    --stores) stores=yes && shift ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
  esac
done

tool=${BUILDER:-}
for candidate in docker podman buildah; do
  [ -n "$tool" ] && break
  command -v "$candidate" >/dev/null && "$candidate" info >/dev/null 2>&1 && tool=$candidate
done
if [ -z "$tool" ]; then
  echo "building images needs docker, podman or buildah, and none of them works here; install one" >&2
  exit 4
fi

images() {
  PYTHONPATH=collector:datasets python3 -m faultset.collector.platforms.kubernetes.settings --repository "$repository" "$@"
}

variables() {
  case $tool in
    buildah) buildah inspect --type image --format '{{.Docker.Config.Env}}' "$1" ;;
    *) "$tool" image inspect --format '{{.Config.Env}}' "$1" ;;
  esac
}

# podman and buildah would call it localhost/faultset/app, which no cluster finds under the short name
full() {
  case $1 in
    *.*/* | *:*/* | localhost/*) echo "$1" ;;
    *) [ "$tool" = docker ] && echo "$1" || echo "docker.io/$1" ;;
  esac
}

options=()
[ -n "${BASE:-}" ] && options+=(--build-arg "BASE=$BASE")
[ -n "${PIP_INDEX_URL:-}" ] && options+=(--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL")
[ "$tool" = docker ] || options+=(--format docker --layers)

mapfile -t names < <(images "$@")
for name in "${names[@]}"; do
  target=app tag=${name##*:}
  [[ ${name%:*} == */pause ]] && target=pause
  # shellcheck disable=SC2086
  "$tool" build ${BUILD_OPTIONS:-} "${options[@]}" --file Containerfile --target "$target" \
    --build-arg "FAULTSET_BUILD=$tag" --build-arg "STORES=$stores" --tag "$(full "$name")" .
  if [ "$target" = app ] && [[ "$(variables "$(full "$name")")" != *"FAULTSET_BUILD=$tag]"* ]]; then
    echo "$tool gave $name the layers of another tag; empty its cache and build again" >&2
    exit 4
  fi
  if [ "$push" = yes ]; then "$tool" push "$(full "$name")"; fi
  echo "built $(full "$name")"
done
