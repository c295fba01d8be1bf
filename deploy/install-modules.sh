#!/bin/sh
# Checked by test/drills/image.test.ts: the service runs with what this installs.
#
# Used by the Dockerfile, in a folder with the files of the service: installs the dependencies of package.json and deletes their unused files.
set -eu
# npm ci --omit=dev would install the dependencies of the workspaces too.
npm pkg delete workspaces devDependencies
npm ci --ignore-scripts --no-audit --no-fund
rm package-lock.json .npmrc
# The links of the embedded PostgreSQL's libraries: later the file system is read-only.
node --input-type=module --eval "await (await import('$PWD/src/db/embedded/binaries.ts')).prepareBinaries()"
# Type declarations and TypeScript sources (Node refuses to run them below node_modules), source maps, texts, static libraries.
find node_modules -type f \( -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -name '*.map' -o -name '*.a' -o -name '*.md' ! -iname 'licen[cs]e*' \) -delete
# Second copies of packages for require(), raw data of the tokenizer, colours for browsers.
rm -rf node_modules/viem/_cjs node_modules/ox/_cjs node_modules/gpt-tokenizer/cjs node_modules/gpt-tokenizer/data \
  node_modules/highlight.js/es node_modules/highlight.js/styles
find node_modules -type d -empty -delete
