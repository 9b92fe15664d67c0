// Loaded before @modelcontextprotocol/server-everything, which is used as it is published.
// It binds the server to a loopback port ($LAB_PORT, or a free one) instead of all interfaces, says which, says each tool
// call that is read, and ends with standard input; nothing else is changed.
// Next: ../install.sh.
const net = require('node:net');

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const ready = args.find(one => typeof one === 'function');
  return listen.call(this, { port: Number(process.env.LAB_PORT ?? 0), host: '127.0.0.1' }, () => {
    process.stdout.write(JSON.stringify({ ev: 'listening', port: this.address().port, path: '/mcp' }) + '\n');
    ready?.call(this);
  });
};
const parse = JSON.parse;
JSON.parse = (...args) => {
  const value = parse(...args);
  const tag = value?.method === 'tools/call' && value.params?.arguments?.tag;
  if (tag) process.stdout.write(JSON.stringify({ ev: 'began', tag }) + '\n');
  return value;
};
process.stdin.on('end', () => process.exit(0)).resume();
