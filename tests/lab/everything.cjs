// Loaded before @modelcontextprotocol/server-everything, which is used as it is published.
// It binds the server to a free loopback port instead of all interfaces, says which, and ends with standard input; nothing else is changed.
// Next: ../install.sh.
const net = require('node:net');

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
  const ready = args.find(one => typeof one === 'function');
  return listen.call(this, { port: 0, host: '127.0.0.1' }, () => {
    process.stdout.write(JSON.stringify({ ev: 'listening', port: this.address().port, path: '/mcp' }) + '\n');
    ready?.call(this);
  });
};
process.stdin.on('end', () => process.exit(0)).resume();
