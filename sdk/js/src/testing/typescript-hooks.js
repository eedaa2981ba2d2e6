// How Node loads a TypeScript module: see ../../typescript.js.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

// esbuild is the project's, not the SDK's.
const project = createRequire(`${process.cwd()}/package.json`);

export async function load(url, context, next) {
  if (!url.startsWith("file:") || !/\.[cm]?ts$/.test(url)) return next(url, context);
  const { transform } = project("esbuild");
  const file = fileURLToPath(url);
  const { code } = await transform(await readFile(file, "utf8"), {
    loader: "ts",
    format: "esm",
    target: "es2022",
    sourcemap: "inline",
    sourcefile: file,
  });
  return { format: "module", source: code, shortCircuit: true };
}
