// A real MCP server or client of 2026-07-28 on the official TypeScript SDK 2.x. Same words as modern.py.
// Law: the transport is the SDK's; what is said is what it saw.
// Next: ../modern.rs.
//
//     modern.mjs server | modern.mjs client URL
import { createServer } from 'node:http';
import { load, pause, require, say } from './lab.mjs';

const { z } = require('zod');

async function serve() {
  const { createMcpHandler, McpServer } = await load('@modelcontextprotocol/server/dist/index.mjs');
  const { toNodeHandler } = await load('@modelcontextprotocol/node/dist/index.mjs');
  const handler = createMcpHandler(() => {
    const server = new McpServer({ name: 'lab-typescript', version: '1' }, { capabilities: { tools: { listChanged: true } } });
    const text = words => ({ content: [{ type: 'text', text: words }] });
    server.registerTool('slow', { inputSchema: z.object({ tag: z.string(), steps: z.number() }) }, async ({ tag, steps }, context) => {
      say({ ev: 'began', tag });
      const progressToken = context.mcpReq._meta?.progressToken;
      for (let progress = 1; progress <= steps; progress += 1) {
        await pause(50);
        if (context.mcpReq.signal?.aborted) {
          say({ ev: 'cancelled', tag });
          return text('cancelled');
        }
        if (progressToken !== undefined) {
          const params = { progressToken, progress, total: steps };
          await context.mcpReq.notify({ method: 'notifications/progress', params }).catch(() => {});
        }
      }
      say({ ev: 'ended', tag });
      return text(`${tag}:done`);
    });
    server.registerTool('change', {}, async () => {
      handler.notify.toolsChanged();
      return text('changed');
    });
    return server;
  });
  const listener = createServer(toNodeHandler(handler));
  listener.listen(0, '127.0.0.1', () => say({ ev: 'listening', port: listener.address().port }));
}

async function client(url) {
  const { Client, StreamableHTTPClientTransport } = await load('@modelcontextprotocol/client/dist/index.mjs');
  const client = new Client({ name: 'lab', version: '1' }, { versionNegotiation: { mode: 'auto' } });
  try {
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    say({ ev: 'ready', protocol: client.getNegotiatedProtocolVersion() });
    say({ ev: 'tools', names: (await client.listTools()).tools.map(tool => tool.name).sort() });
    const seen = [];
    const whole = { name: 'slow', arguments: { tag: 'whole', steps: 3 } };
    const answer = await client.callTool(whole, { onprogress: ({ progress }) => seen.push(progress) });
    say({ ev: 'answer', text: answer.content[0].text, progress: seen });
    const leaving = new AbortController();
    setTimeout(() => leaving.abort(), 400);
    await client.callTool({ name: 'slow', arguments: { tag: 'left', steps: 400 } }, { signal: leaving.signal }).catch(() => say({ ev: 'withdrawn' }));
    client.setNotificationHandler('notifications/tools/list_changed', () => say({ ev: 'changed', what: 'ToolsListChanged' }));
    const subscription = await client.listen({ toolsListChanged: true });
    say({ ev: 'subscribed' });
    await client.callTool({ name: 'change', arguments: {} });
    say({ ev: 'over', how: await subscription.closed });
  } catch (error) {
    say({ ev: 'over', how: `${error.name}: ${error.message}` });
  }
  process.exit(0);
}

process.stdin.on('end', () => process.exit(0)).resume();
await (process.argv[2] === 'server' ? serve() : client(process.argv[3]));
