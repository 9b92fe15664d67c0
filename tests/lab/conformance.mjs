// A client for the official conformance suite's client mode, on the official TypeScript SDK, 1.x or 2.x. The suite starts it with the
// URL of its server as the last argument, and names the scenario and the revision in the environment.
// It does what every scenario asks for: connect (with OAuth where the server wants it), list tools, call them, leave.
// Law: what a scenario judges is the SDK's own doing; nothing is done here for one scenario's sake but the schema that is echoed.
// With LAB_REACHED_AT=http://ADDRESS the server of URL is found there, as where its name leads to a proxy; the SDK never knows.
// Next: conformance.py.
//
//     conformance.mjs SDK URL
import { load } from './lab.mjs';

const [, , sdk, url] = process.argv;
const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
if (process.env.LAB_REACHED_AT) {
  const { fetch } = globalThis;
  const { origin } = new URL(url);
  const led = where => (where.origin === origin ? new URL(where.pathname + where.search, process.env.LAB_REACHED_AT) : where);
  globalThis.fetch = (where, init) => fetch(led(new URL(where)), init);
}
/** How often one step may ask for new permission. */
const PERMISSIONS_MAX = 3;

async function parts() {
  if (sdk === '1') {
    const base = '@modelcontextprotocol/sdk/dist/esm/';
    const { Client } = await load(base + 'client/index.js');
    const { StreamableHTTPClientTransport } = await load(base + 'client/streamableHttp.js');
    const { UnauthorizedError } = await load(base + 'client/auth.js');
    const { ElicitRequestSchema } = await load(base + 'types.js');
    return { Client, Transport: StreamableHTTPClientTransport, UnauthorizedError, onElicit: ElicitRequestSchema, options: {} };
  }
  const { Client, StreamableHTTPClientTransport, UnauthorizedError } = await load('@modelcontextprotocol/client/dist/index.mjs');
  const options = revision === '2026-07-28' ? { versionNegotiation: { mode: 'auto' } } : {};
  return { Client, Transport: StreamableHTTPClientTransport, UnauthorizedError, onElicit: 'elicitation/create', options };
}

/** What an application keeps for OAuth, in memory; the browser is a request that follows no redirect. */
class Keeper {
  redirectUrl = 'http://localhost:8123/callback';
  clientMetadataUrl = 'https://conformance-test.local/client-metadata.json';
  kept = context.client_id ? { clientInformation: { client_id: context.client_id, client_secret: context.client_secret } } : {};
  get clientMetadata() {
    return {
      client_name: 'lab-typescript', redirect_uris: [this.redirectUrl], response_types: ['code'],
      grant_types: ['authorization_code', 'refresh_token'], token_endpoint_auth_method: 'client_secret_post',
    };
  }
  clientInformation() { return this.kept.clientInformation; }
  saveClientInformation(value) { this.kept.clientInformation = value; }
  tokens() { return this.kept.tokens; }
  saveTokens(value) { this.kept.tokens = value; }
  codeVerifier() { return this.kept.codeVerifier; }
  saveCodeVerifier(value) { this.kept.codeVerifier = value; }
  discoveryState() { return this.kept.discovery; }
  saveDiscoveryState(value) { this.kept.discovery = value; }
  invalidateCredentials(scope) {
    if (scope === 'all') this.kept = {};
    delete this.kept[{ client: 'clientInformation', tokens: 'tokens', verifier: 'codeVerifier', discovery: 'discovery' }[scope]];
  }
  async redirectToAuthorization(where) {
    const answer = await fetch(where, { redirect: 'manual' });
    this.callback = new URL(answer.headers.get('location')).searchParams;
  }
}

const { Client, Transport, UnauthorizedError, onElicit, options } = await parts();
const keeper = new Keeper();
let transport;

async function permitted(step) {
  for (let permissions = 0; ; permissions += 1) {
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || permissions === PERMISSIONS_MAX) throw error;
      await transport.finishAuth(sdk === '1' ? keeper.callback.get('code') : keeper.callback);
    }
  }
}

// A value for each argument that a tool requires.
function sample(schema, tools) {
  const values = { string: 'x', number: 2, integer: 2, boolean: true, array: [], object: tools[0].inputSchema };
  const given = Object.entries(schema.properties ?? {}).map(([name, one]) => [name, one.const ?? one.enum?.[0] ?? values[[one.type].flat()[0]] ?? 'x']);
  return Object.fromEntries(given);
}

const client = await permitted(async () => {
  transport = new Transport(new URL(url), { authProvider: keeper });
  const one = new Client({ name: 'lab-typescript', version: '1' }, { capabilities: { sampling: {}, elicitation: { form: { applyDefaults: true } } }, ...options });
  one.setRequestHandler(onElicit, async () => ({ action: 'accept', content: {} }));
  await one.connect(transport);
  return one;
});
const { tools } = await permitted(() => client.listTools());
let failed;
for (const { name, inputSchema } of tools) {
  await permitted(() => client.callTool({ name, arguments: sample(inputSchema, tools) })).catch(error => { failed ??= error; });
}
await client.close();
if (failed) throw failed;
process.exit(0);
