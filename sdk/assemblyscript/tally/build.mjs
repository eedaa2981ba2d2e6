// Compiles assembly/tally.ts to build/module.wasm, a core module with the names of the canonical ABI. AssemblyScript has no way to give an export a
// name that is no identifier, so they are renamed after it, with the binaryen that it comes with.
//
// weir plugin componentize build/module.wasm --world stateful-operator -o tally-as.wasm

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import asc from "assemblyscript/asc";
import binaryen from "binaryen";

const interfaces = {
  "weir:plugin/processor@0.1.0": ["describe", "open", "process", "advance", "wake", "finish", "resume"],
  "weir:plugin/checkpoint@0.1.0": ["snapshot", "restore"],
};

mkdirSync("build", { recursive: true });
const { error, stdout, stderr } = await asc.main([
  "assembly/tally.ts",
  "assembly/abort.ts",
  "-O3",
  "--runtime", "minimal",
  "--use", "abort=assembly/abort/abort",
  "--outFile", "build/plain.wasm",
]);
if (error) {
  console.error(stdout.toString(), stderr.toString(), error.message);
  process.exit(1);
}
process.stderr.write(stderr.toString());
const module = binaryen.readBinary(readFileSync("build/plain.wasm"));
module.setFeatures(binaryen.Features.All);
module.removeExport("abort");
for (const [name, functions] of Object.entries(interfaces)) {
  for (const exported of functions) {
    const internal = binaryen.getExportInfo(module.getExport(exported)).value;
    module.removeExport(exported);
    module.addFunctionExport(internal, `${name}#${exported}`);
  }
}
if (!module.validate()) throw new Error("binaryen made a module that is not valid");
writeFileSync("build/module.wasm", module.emitBinary());
