// Lets Node run TypeScript, for tests: `node --import ./vendor/weir/typescript.js --test test/*.test.ts`.
//
// Newer versions of Node take the types out by themselves; this does it with esbuild, which builds the operator anyway, so that
// tests run what will be built.

import { register } from "node:module";

register("./src/testing/typescript-hooks.js", import.meta.url);
