// A real MCP client on the official TypeScript SDK: 1 (@modelcontextprotocol/sdk 1.x) or 2 (@modelcontextprotocol/client 2.x).
// It is told and says the same as client.py, and judges as little. The SDK's own time limits are as they come, but for the call's:
// whoever reads this decides when a call hangs.
// Next: matrix.mjs.
//
//     client.mjs SDK URL [sse|sse-with-cursor]
import readline from 'node:readline';
import { load, say } from './lab.mjs';
import { Inbox, drive } from './matrix.mjs';

const [, , sdk, url, over = 'streamable'] = process.argv;

async function parts() {
  if (sdk === '1') {
    const base = '@modelcontextprotocol/sdk/dist/esm/';
    const { Client } = await load(base + 'client/index.js');
    const { StreamableHTTPClientTransport } = await load(base + 'client/streamableHttp.js');
    const { SSEClientTransport } = await load(base + 'client/sse.js');
    const types = await load(base + 'types.js');
    return {
      Client, Transport: over === 'streamable' ? StreamableHTTPClientTransport : SSEClientTransport,
      onLog: types.LoggingMessageNotificationSchema,
      onUpdate: types.ResourceUpdatedNotificationSchema, onChange: types.ToolListChangedNotificationSchema,
      onSample: types.CreateMessageRequestSchema, onElicit: types.ElicitRequestSchema,
      callTool: (client, call, options) => client.callTool(call, undefined, options),
    };
  }
  const { Client, StreamableHTTPClientTransport, SSEClientTransport } = await load('@modelcontextprotocol/client/dist/index.mjs');
  return {
    Client, Transport: over === 'streamable' ? StreamableHTTPClientTransport : SSEClientTransport,
    onLog: 'notifications/message',
    onUpdate: 'notifications/resources/updated', onChange: 'notifications/tools/list_changed',
    onSample: 'sampling/createMessage', onElicit: 'elicitation/create',
    callTool: (client, call, options) => client.callTool(call, options),
  };
}

// The SDK's EventSource knows its cursor, and its transport drops it with every other header of its own. This `fetch` reads
// the ids that go by and presents the last one.
function rememberingFetch() {
  let last;
  return async (target, init) => {
    const headers = new Headers(init?.headers);
    const listens = (init?.method ?? 'GET') === 'GET';
    if (listens && last) headers.set('last-event-id', last);
    const response = await fetch(target, { ...init, headers });
    if (!listens || !response.body) return response;
    let line = '';
    let pending;
    const decoder = new TextDecoder();
    const seen = new TransformStream({
      transform(bytes, on) {
        const lines = (line + decoder.decode(bytes, { stream: true })).split(/\r?\n/);
        line = lines.pop();
        // An id holds once its event is whole.
        for (const text of lines) {
          if (text.startsWith('id: ')) pending = text.slice(4);
          if (text === '' && pending) [last, pending] = [pending, undefined];
        }
        on.enqueue(bytes);
      },
    });
    return Object.defineProperty(new Response(response.body.pipeThrough(seen), response), 'url', { value: response.url });
  };
}

// The SDK hands a response on at once and a notification a moment later. Over HTTP+SSE it is given every message of one read
// in one go, so that the progress before a response is lost within it: messages are given to it one at a time.
function oneAtATime(transport) {
  const take = transport.onmessage;
  let turn = Promise.resolve();
  transport.onmessage = (...message) => {
    turn = turn.then(() => take(...message)).then(() => new Promise(setImmediate));
  };
}

const words = error => `${error?.name ?? ''}: ${error?.message ?? error}` + (error?.data ? ' ' + JSON.stringify(error.data) : '');

async function call(client, callTool, { tag, tool, arguments: given }) {
  const options = { timeout: 3_600_000, onprogress: progress => say({ ev: 'progress', tag, p: progress.progress }) };
  try {
    const result = await callTool(client, { name: tool, arguments: given }, options);
    say({ ev: 'answer', tag, outcome: result.isError ? 'tool_error' : 'result', text: result.content?.[0]?.text ?? '' });
  } catch (error) {
    say({ ev: 'answer', tag, outcome: 'error', text: words(error) });
  }
}

try {
  const { Client, Transport, onLog, onUpdate, onChange, onSample, onElicit, callTool } = await parts();
  const client = new Client({ name: 'lab-typescript', version: '1' }, { capabilities: { sampling: {}, elicitation: {} } });
  const inbox = new Inbox();
  const options = over === 'sse-with-cursor' ? { fetch: rememberingFetch() } : undefined;
  const transport = new Transport(new URL(url), options);
  client.onerror = error => say({ ev: 'onerror', text: words(error) });
  client.setNotificationHandler(onLog, ({ params }) => {
    say({ ev: 'log', logger: params.logger, level: params.level, data: params.data });
    inbox.logs.push(params.data);
  });
  client.setNotificationHandler(onUpdate, ({ params }) => { inbox.updated.push(params.uri); });
  client.setNotificationHandler(onChange, () => { inbox.changed += 1; });
  client.setRequestHandler(onSample, () => ({ role: 'assistant', content: { type: 'text', text: 'sampled' }, model: 'lab' }));
  client.setRequestHandler(onElicit, () => ({ action: 'accept', content: { username: 'u', email: 'e' } }));
  await client.connect(transport);
  if (over !== 'streamable') oneAtATime(transport);
  say({ ev: 'ready', protocol: transport.protocolVersion });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if (order.do === 'matrix') drive(client, callTool, inbox);
    else if (order.do === 'call') call(client, callTool, order);
    else break;
  }
  say({ ev: 'left' });
  process.exit(0);
} catch (error) {
  say({ ev: 'fatal', text: words(error) });
  process.exit(1);
}
