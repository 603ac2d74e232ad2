#!/usr/bin/env bash
# Builds common/charts/vendored/echarts.js again from the versions of its package-lock.json; needs npm.
# charts.sh [FOLDER]: into another folder. The same versions result in the same file, whose sha256 stands beside it.
set -euo pipefail
vendored=$(cd "$(dirname "$0")/../common/charts/vendored" && pwd)
into=${1:-$vendored}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$vendored"/{entry.js,package.json,package-lock.json} "$work"
cd "$work"
npm ci --no-audit --no-fund
npm run build
sha256sum echarts.js >echarts.js.sha256
cp node_modules/echarts/LICENSE node_modules/echarts/NOTICE .
cp node_modules/zrender/LICENSE LICENSE.zrender
cp node_modules/tslib/LICENSE.txt LICENSE.tslib
cp echarts.js echarts.js.sha256 LICENSE LICENSE.zrender LICENSE.tslib NOTICE "$into"
