// The server on the TypeScript SDK 1.x, which has revisions with sessions.
//   node typescript_sessions.mjs [http default|json PORT]
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { openSync, writeSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import * as z from 'zod';

const fd = openSync(process.env.SLOW_LOG ?? '/dev/null', 'a');
const mark = (event, tag) => writeSync(fd, `${event} ${tag} ${process.hrtime.bigint()}\n`);
const text = t => ({ content: [{ type: 'text', text: t }] });

const echoInput = { text: z.string() };
const addInput = { a: z.int(), b: z.int() };
const slowInput = { seconds: z.number(), tag: z.string(), progress: z.boolean().default(false) };

function makeServer() {
  const server = new McpServer({ name: 'peer', version: '1' });
  server.registerTool('echo', { description: 'Echo the text.', inputSchema: echoInput }, async a => text(a.text));
  server.registerTool('add', { description: 'Add two integers.', inputSchema: addInput }, async a => text(String(a.a + a.b)));
  server.registerTool('slow', { description: 'Sleep.', inputSchema: slowInput }, async (a, extra) => {
    const token = extra._meta?.progressToken;
    if (a.progress && token !== undefined)
      await extra.sendNotification({ method: 'notifications/progress', params: { progressToken: token, progress: 0, total: 1 } });
    mark('start', a.tag);
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, a.seconds * 1000);
      extra.signal.addEventListener('abort', () => {
        clearTimeout(timer);
        mark('cancelled', a.tag);
        reject(new Error('cancelled'));
      });
    });
    mark('done', a.tag);
    return text(a.tag);
  });
  return server;
}

if (process.argv[2] === 'http') {
  // With sessions, as its documentation has it, but without Express, which makes it slower: a server and a transport a session.
  const sessions = new Map();
  createServer(async (request, response) => {
    let transport = sessions.get(request.headers['mcp-session-id']);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: process.argv[3] === 'json',
        onsessioninitialized: id => sessions.set(id, transport)
      });
      transport.onclose = () => sessions.delete(transport.sessionId);
      await makeServer().connect(transport);
    }
    await transport.handleRequest(request, response);
  }).listen(Number(process.argv[4]), '127.0.0.1');
} else {
  await makeServer().connect(new StdioServerTransport());
}
