// Where the npm packages of the lab are, and the one way its processes speak: one JSON object a line.
// Law: nothing here knows MCP. Absent on purpose: any package manager; ../install.sh has put the packages there.
// Next: server.mjs.
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { createRequire } from 'node:module';

export const root = process.env.THROUGHLINE_LAB ?? path.join(os.homedir(), '.cache', 'throughline-tests');

// Loads one file of an installed package: the SDKs are not on the default module path.
export const load = file => import(pathToFileURL(path.join(root, 'node_modules', file)).href);

// A `require` that resolves as if the caller lived among those packages.
export const require = createRequire(path.join(root, 'lab.js'));

export const say = fields => process.stdout.write(JSON.stringify(fields) + '\n');

export const pause = ms => new Promise(resolve => setTimeout(resolve, ms));
