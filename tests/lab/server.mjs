// A real MCP server on the official TypeScript SDK: --sdk 1 (@modelcontextprotocol/sdk 1.x) or 2 (@modelcontextprotocol/server 2.x).
// The transport and the sessions are the SDK's; only the tools are ours. Same words, same tools and same end as server.py.
// Next: fixture.mjs.
//
//     server.mjs --sdk 1|2 [--fixture] [--protocol REVISION] [--store none|memory] [--stateless] [--sse] [--port N]
//
// --fixture   everything in fixture.mjs instead of the two tools; SDK 2 then also serves 2026-07-28, as its documentation shows
// --protocol  the revision that is spoken with clients, whatever newer one they offer
import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import { makeFixture } from './fixture.mjs';
import { load, pause, require, say } from './lab.mjs';

const { z } = require('zod');

const { values: args } = parseArgs({
  options: {
    sdk: { type: 'string' },
    store: { type: 'string', default: 'none' },
    fixture: { type: 'boolean', default: false },
    protocol: { type: 'string' },
    stateless: { type: 'boolean', default: false },
    sse: { type: 'boolean', default: false },
    port: { type: 'string', default: '0' },
  },
});

async function sdkOne() {
  const base = '@modelcontextprotocol/sdk/dist/esm/';
  const { McpServer } = await load(base + 'server/mcp.js');
  const { StreamableHTTPServerTransport } = await load(base + 'server/streamableHttp.js');
  const { Server } = await load(base + 'server/index.js');
  const types = await load(base + 'types.js');
  const schemas = new Map();
  for (const schema of types.ClientRequestSchema.options) schemas.set(schema.shape.method.value, schema);
  const results = { 'sampling/createMessage': types.CreateMessageResultSchema, 'elicitation/create': types.ElicitResultSchema };
  return {
    McpServer, Server, Transport: StreamableHTTPServerTransport, isInitializeRequest: types.isInitializeRequest, schema: shape => shape,
    progress: extra => ({ token: extra._meta?.progressToken, notify: extra.sendNotification }),
    handle: (server, method, answer) => server.setRequestHandler(schemas.get(method), answer),
    ask: extra => ({
      token: extra._meta?.progressToken, notify: extra.sendNotification, signal: extra.signal, closeStream: extra.closeSSEStream,
      request: (method, params) => extra.sendRequest({ method, params }, results[method]),
    }),
  };
}

async function sdkTwo() {
  const { McpServer, Server, isInitializeRequest, isLegacyRequest, createMcpHandler } = await load('@modelcontextprotocol/server/dist/index.mjs');
  const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = await load('@modelcontextprotocol/node/dist/index.mjs');
  return {
    McpServer, Server, Transport: NodeStreamableHTTPServerTransport, isInitializeRequest, schema: shape => z.object(shape),
    progress: context => ({ token: context.mcpReq._meta?.progressToken, notify: message => context.mcpReq.notify(message) }),
    handle: (server, method, answer) => server.setRequestHandler(method, answer),
    ask: ({ mcpReq, http }) => ({
      token: mcpReq._meta?.progressToken, notify: message => mcpReq.notify(message), signal: mcpReq.signal, closeStream: http?.closeSSE,
      request: (method, params) => mcpReq.send({ method, params }),
      responses: mcpReq.inputResponses, state: mcpReq.requestState?.(), declared: mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'],
    }),
    isLegacy: async request => isLegacyRequest(await toWebRequest(request, request.body)),
    modern: makeServer => toNodeHandler(createMcpHandler(makeServer, { legacy: 'reject' })),
  };
}

const sdk = await (args.sdk === '1' ? sdkOne() : sdkTwo());

// An event store whose ids sort as they were made.
class MemoryStore {
  events = [];
  async storeEvent(stream, message) {
    this.events.push({ stream, message });
    return `${stream}/${this.events.length}`;
  }
  async replayEventsAfter(last, { send }) {
    const [stream, number] = last.split('/');
    for (let at = Number(number); at < this.events.length; at += 1) {
      const event = this.events[at];
      const empty = !event.message || Object.keys(event.message).length === 0;
      if (event.stream === stream && !empty) await send(`${stream}/${at + 1}`, event.message);
    }
    return stream;
  }
}

function makeTools() {
  const server = new sdk.McpServer({ name: 'lab-typescript', version: '1' }, { capabilities: { logging: {} } });
  const text = words => ({ content: [{ type: 'text', text: words }] });
  server.registerTool(
    'slow',
    { description: 'so many progress notifications, then a result', inputSchema: sdk.schema({ tag: z.string(), steps: z.number(), interval_ms: z.number() }) },
    async ({ tag, steps, interval_ms }, context) => {
      const { token, notify } = sdk.progress(context);
      say({ ev: 'began', tag });
      for (let step = 1; step <= steps; step += 1) {
        await pause(interval_ms);
        if (token === undefined) continue;
        const params = { progressToken: token, progress: step, total: steps, message: `${tag}:${step}` };
        await notify({ method: 'notifications/progress', params }).catch(() => {});
      }
      say({ ev: 'ended', tag });
      return text(`${tag}:done`);
    },
  );
  const emitAll = async (tag, n, interval_ms) => {
    for (let seq = 1; seq <= n; seq += 1) {
      await pause(interval_ms);
      await server.server.notification({ method: 'notifications/message', params: { level: 'info', data: { tag, seq } } });
    }
    say({ ev: 'emitted', tag, n });
  };
  server.registerTool(
    'emit',
    { description: 'so many numbered log notifications on the standalone GET stream; answers at once', inputSchema: sdk.schema({ tag: z.string(), n: z.number(), interval_ms: z.number() }) },
    async ({ tag, n, interval_ms }) => {
      say({ ev: 'began', tag });
      emitAll(tag, n, interval_ms).catch(error => say({ ev: 'emit_failed', tag, text: String(error) }));
      return text(`${tag}:emitting`);
    },
  );
  return server;
}

const makeServer = args.fixture ? () => makeFixture(sdk) : makeTools;
const modern = args.fixture && sdk.modern?.(makeServer);

const express = require('express');
const app = express();
// Its transport reads bodies itself.
if (!args.sse) app.use(express.json({ limit: '4mb' }));
const store = args.store === 'memory' ? new MemoryStore() : undefined;
const sessions = new Map();
const refuse = (response, status, code, message) => response.status(status).json({ jsonrpc: '2.0', error: { code, message }, id: null });

async function answer(request, response) {
  if (modern && !(await sdk.isLegacy(request))) return modern(request, response, request.body);
  if (args.protocol && sdk.isInitializeRequest(request.body)) request.body.params.protocolVersion = args.protocol;
  if (args.stateless) {
    if (request.method !== 'POST') return refuse(response, 405, -32000, 'Method not allowed.');
    const transport = new sdk.Transport({ sessionIdGenerator: undefined });
    await makeServer().connect(transport);
    return transport.handleRequest(request, response, request.body);
  }
  const id = request.headers['mcp-session-id'];
  if (id !== undefined) {
    const transport = sessions.get(id);
    return transport ? transport.handleRequest(request, response, request.body) : refuse(response, 404, -32001, 'Session not found');
  }
  if (!sdk.isInitializeRequest(request.body)) return refuse(response, 400, -32000, 'Bad Request: No valid session ID provided');
  const transport = new sdk.Transport({
    sessionIdGenerator: () => randomUUID(),
    eventStore: store,
    // A server that ends a stream to be polled says when to come back.
    retryInterval: args.fixture && !process.env.LAB_NO_RETRY ? 500 : undefined,
    onsessioninitialized: made => sessions.set(made, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await makeServer().connect(transport);
  return transport.handleRequest(request, response, request.body);
}

app.all('/mcp', (request, response) =>
  answer(request, response).catch(error => {
    say({ ev: 'failed', text: String(error) });
    if (!response.headersSent) response.status(500).end();
  }),
);
// 2024-11-05, which the SDK 1.x still has: GET /sse, and POSTs where its first event says.
if (args.sse) {
  const { SSEServerTransport } = await load('@modelcontextprotocol/sdk/dist/esm/server/sse.js');
  app.get('/sse', async (_, response) => {
    const transport = new SSEServerTransport('/messages', response);
    sessions.set(transport.sessionId, transport);
    response.on('close', () => sessions.delete(transport.sessionId));
    await makeServer().connect(transport);
  });
  app.post('/messages', async (request, response) => {
    const transport = sessions.get(request.query.sessionId);
    return transport ? transport.handlePostMessage(request, response) : response.status(404).end('Session not found');
  });
}
process.stdin.on('end', () => process.exit(0)).resume();
const listener = app.listen(Number(args.port), '127.0.0.1', () => say({ ev: 'listening', port: listener.address().port, path: args.sse ? '/sse' : '/mcp' }));
