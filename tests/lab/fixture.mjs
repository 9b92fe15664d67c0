// What the official conformance suite and the matrix of SDKs ask of a server, on a TypeScript SDK's low-level server: fixture.json
// says what stands still, this says what moves. Same words, same tools and same observations as fixture.py.
// Law: it answers as the SDK does; nothing here knows of proxies.
// Next: server.py.
import { createHmac, randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { pause, say } from './lab.mjs';

const fixture = JSON.parse(readFileSync(new URL('fixture.json', import.meta.url)));

const capabilities = { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, logging: {}, completions: {} };

const text = words => ({ content: [{ type: 'text', text: words }] });

// Puts arguments into `{name}`, wherever a text has it.
const filled = (value, values) => JSON.parse(JSON.stringify(value), (_, one) => (typeof one === 'string' ? one.replace(/\{(\w+)\}/g, (hole, name) => values[name] ?? hole) : one));

// Tools that do something. `ask` is the call's context in one shape for both lines of the SDK: notify, request, meta, signal, closeStream.
const moving = {
  async test_tool_with_logging(_, ask) {
    for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
      await ask.notify({ method: 'notifications/message', params: { level: 'info', data } });
      await pause(50);
    }
    return text('logged');
  },
  async test_tool_with_progress(_, ask) {
    for (const progress of [0, 50, 100]) {
      if (ask.token !== undefined) await ask.notify({ method: 'notifications/progress', params: { progressToken: ask.token, progress, total: 100 } });
      await pause(50);
    }
    return text('progressed');
  },
  async test_sampling({ prompt }, ask) {
    const messages = [{ role: 'user', content: { type: 'text', text: prompt } }];
    const answer = await ask.request('sampling/createMessage', { messages, maxTokens: 100 });
    return text(`LLM response: ${[answer.content].flat()[0].text}`);
  },
  async test_reconnection(_, ask) {
    ask.closeStream?.();
    await pause(100);
    return text('reconnected');
  },
  async slow({ tag, steps, interval_ms }, ask) {
    say({ ev: 'began', tag });
    for (let step = 1; step <= steps; step += 1) {
      await pause(interval_ms);
      if (ask.signal?.aborted) {
        say({ ev: 'cancelled', tag });
        return text(`${tag}:cancelled`);
      }
      if (ask.token === undefined) continue;
      const params = { progressToken: ask.token, progress: step, total: steps, message: `${tag}:${step}` };
      await ask.notify({ method: 'notifications/progress', params }).catch(() => {});
    }
    say({ ev: 'ended', tag });
    return text(`${tag}:done`);
  },
  async emit({ tag, n, interval_ms }, { server }) {
    (async () => {
      for (let seq = 1; seq <= n; seq += 1) {
        await pause(interval_ms);
        await server.notification({ method: 'notifications/message', params: { level: 'info', data: { tag, seq } } });
      }
    })().catch(error => say({ ev: 'emit_failed', tag, text: String(error) }));
    return text(`${tag}:emitting`);
  },
  async touch({ uri }, { server }) {
    await server.notification({ method: 'notifications/resources/updated', params: { uri } });
    return text('touched');
  },
  async change_tools(_, { server }) {
    await server.notification({ method: 'notifications/tools/list_changed' });
    return text('changed');
  },
};
for (const [tool, question] of Object.entries(fixture.elicitations)) {
  moving[tool] = async (given, ask) => {
    const { action, content } = await ask.request('elicitation/create', { ...given, ...question });
    return text(`User response: action=${action}, content=${JSON.stringify(content ?? {})}`);
  };
}

// What is still to be asked before something is answered, in the way of 2026-07-28; only what the client has declared,
// but for one that asks for more to be refused by its SDK.
const key = randomBytes(32);
const sealed = (name, round) => `${round}.${createHmac('sha256', key).update(`${name} ${round}`).digest('base64url')}`;
function toAsk(name, { responses, state, declared }, refuse) {
  const { rounds, keeps, even } = fixture.asks[name] ?? { rounds: [] };
  if (!declared || rounds.length === 0) return undefined;
  let round = keeps && state !== undefined ? parseInt(state, 10) : 0;
  if (keeps && state !== undefined && state !== sealed(name, round)) throw refuse('Not the state that was given out');
  const asked = () => Object.entries(rounds[round]).filter(([, { method }]) => even || declared[method.split('/')[0]]);
  if (asked().every(([one]) => responses?.[one]?.constructor === Object)) round += 1;
  if (round === rounds.length) return undefined;
  return { resultType: 'input_required', inputRequests: Object.fromEntries(asked()), ...(keeps && { requestState: sealed(name, round) }) };
}

function read(uri) {
  const id = /^test:\/\/template\/(.+)\/data$/.exec(uri)?.[1];
  return id === undefined ? fixture.contents[uri] : filled(fixture.template, { id });
}

// A server of this SDK line; `sdk` is what server.mjs has loaded.
export function makeFixture(sdk) {
  const server = new sdk.Server({ name: 'lab-typescript', version: '1' }, { capabilities });
  const refuse = (words, data) => Object.assign(new Error(words), { code: -32602, data });
  const answers = {
    'tools/list': () => ({ tools: fixture.tools }),
    'tools/call': ({ name, arguments: given }, context) => {
      if (fixture.results[name]) return fixture.results[name];
      if (fixture.asks[name]?.answer) return toAsk(name, sdk.ask(context), refuse) ?? text(fixture.asks[name].answer);
      if (!moving[name]) throw refuse(`Unknown tool: ${name}`);
      return moving[name](given ?? {}, { server, ...sdk.ask(context) });
    },
    'resources/list': () => ({ resources: fixture.resources }),
    'resources/templates/list': () => ({ resourceTemplates: fixture.templates }),
    'resources/read': ({ uri }) => {
      const found = read(uri);
      if (!found) throw refuse('Resource not found', { uri });
      return { contents: [found] };
    },
    'resources/subscribe': () => ({}),
    'resources/unsubscribe': () => ({}),
    'prompts/list': () => ({ prompts: fixture.prompts }),
    'prompts/get': ({ name, arguments: given }, context) => {
      if (!fixture.messages[name]) throw refuse(`Unknown prompt: ${name}`);
      return toAsk(name, sdk.ask(context), refuse) ?? { messages: filled(fixture.messages[name], given ?? {}) };
    },
    'completion/complete': () => ({ completion: { values: ['paris', 'park', 'party'], total: 3, hasMore: false } }),
  };
  for (const [method, answer] of Object.entries(answers)) {
    sdk.handle(server, method, async (request, context) => answer(request.params ?? {}, context));
  }
  return server;
}
