// One drive through everything that a client and a server do together, for the matrix of SDKs; a client of client.mjs is given in.
// Each feature says one line: ok, or why not. What needs a broken connection relies on whoever breaks it; see tests/interop/matrix.rs.
// Law: it demands what the user of an SDK would: each answer, each message once and in order. Same features as matrix.py.
// Next: matrix.py.
import { pause, say } from './lab.mjs';

const PATIENCE_MS = 15_000;

// What has come, and a way to wait for more of it.
export class Inbox {
  logs = [];
  updated = [];
  changed = 0;
  async until(enough, what) {
    for (const began = Date.now(); !enough(this); await pause(20)) {
      if (Date.now() - began > PATIENCE_MS) throw new Error(`${what} did not come: ${JSON.stringify(this)}`);
    }
  }
}

function same(is, must) {
  if (JSON.stringify(is) !== JSON.stringify(must)) throw new Error(`${JSON.stringify(is)} instead of ${JSON.stringify(must)}`);
}

export async function drive(client, callTool, inbox) {
  const call = async (name, given = {}, options = {}) => {
    const result = await callTool(client, { name, arguments: given }, { timeout: PATIENCE_MS, resetTimeoutOnProgress: true, ...options });
    if (result.isError) throw new Error(result.content[0].text);
    return result.content[0].text;
  };
  const progressing = async (name, given) => {
    const seen = [];
    return [await call(name, given, { onprogress: ({ progress }) => seen.push(progress) }), seen];
  };
  const features = {
    async resume() {
      await call('emit', { tag: 'resume', n: 20, interval_ms: 50 });
      const mine = () => inbox.logs.filter(data => data?.tag === 'resume').map(data => data.seq);
      await inbox.until(() => mine().includes(20), 'the last message');
      same(mine(), Array.from({ length: 20 }, (_, at) => at + 1));
    },
    async cut() {
      same(await progressing('slow', { tag: 'cut', steps: 8, interval_ms: 100 }), ['cut:done', [1, 2, 3, 4, 5, 6, 7, 8]]);
    },
    async progress() {
      same(await progressing('test_tool_with_progress'), ['progressed', [0, 50, 100]]);
    },
    async sampling() {
      same(await call('test_sampling', { prompt: 'hello' }), 'LLM response: sampled');
    },
    async elicitation() {
      const text = await call('test_elicitation', { message: 'who?' });
      if (!/action=accept.*"u"/.test(text)) throw new Error(text);
    },
    async logging() {
      await client.setLoggingLevel('info');
      await call('test_tool_with_logging');
      const wanted = ['Tool execution started', 'Tool processing data', 'Tool execution completed'];
      await inbox.until(() => wanted.every(words => inbox.logs.includes(words)), 'a log message');
    },
    async subscription() {
      const uri = 'test://watched-resource';
      await client.subscribeResource({ uri });
      await call('touch', { uri });
      await inbox.until(() => inbox.updated.includes(uri), 'the update');
      await client.unsubscribeResource({ uri });
    },
    async list_changed() {
      await call('change_tools');
      await inbox.until(() => inbox.changed > 0, 'the change');
    },
    async cancellation() {
      const stop = new AbortController();
      const running = call('slow', { tag: 'cancel', steps: 100, interval_ms: 100 }, { signal: stop.signal, onprogress: () => stop.abort('no more') });
      const text = await running.catch(() => undefined);
      if (text !== undefined) throw new Error(`it ended: ${text}`);
    },
  };
  say({ ev: 'feature', name: 'initialize', outcome: 'ok' });
  for (const [name, feature] of Object.entries(features)) {
    try {
      await feature();
      say({ ev: 'feature', name, outcome: 'ok' });
    } catch (error) {
      say({ ev: 'feature', name, outcome: 'failed', why: String(error?.message ?? error) });
    }
  }
  say({ ev: 'driven' });
}
