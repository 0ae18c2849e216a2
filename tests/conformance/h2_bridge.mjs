// An HTTP/1.1 server that passes everything on over HTTP/2 without TLS: `node h2_bridge.mjs http://127.0.0.1:8000`.
//
// The official suite speaks HTTP/1.1 only. With this in front, what it asks reaches our server over HTTP/2: one
// connection, a stream for each request. A client that hangs up resets its stream. Prints its own URL.
import http from 'node:http';
import http2 from 'node:http2';

const target = new URL(process.argv[2]);
// Of one hop, or set by HTTP/2 itself (RFC 9113, section 8.2.2).
const HOP = new Set(['connection', 'host', 'keep-alive', 'proxy-connection', 'te', 'transfer-encoding', 'upgrade', 'http2-settings']);

let session;
function connection() {
  if (!session || session.closed || session.destroyed) {
    session = http2.connect(target.origin);
    session.on('error', (error) => console.error(`h2_bridge: ${error}`));
  }
  return session;
}

const server = http.createServer((request, response) => {
  const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !HOP.has(name)));
  const stream = connection().request({
    ...headers,
    ':method': request.method,
    ':path': request.url,
    // The suite tests what a wrong Host does, so it goes on as it came.
    ':authority': request.headers.host,
  });
  stream.on('response', (fields) => {
    const passed = Object.entries(fields).filter(([name]) => !name.startsWith(':') && !HOP.has(name));
    response.writeHead(fields[':status'], Object.fromEntries(passed));
    response.flushHeaders();
  });
  stream.on('error', (error) => {
    console.error(`h2_bridge: ${request.method} ${request.headers['mcp-method'] ?? ''}: ${error}`);
    response.destroy();
  });
  response.on('close', () => stream.close(http2.constants.NGHTTP2_CANCEL));
  stream.pipe(response);
  request.pipe(stream);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}${target.pathname}`));
