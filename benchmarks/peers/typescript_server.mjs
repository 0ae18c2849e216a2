// The server on the TypeScript SDK.
//   node typescript_server.mjs [http PORT]
import { createServer } from 'node:http';
import { openSync, writeSync } from 'node:fs';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const fd = openSync(process.env.SLOW_LOG ?? '/dev/null', 'a');
const mark = (event, tag) => writeSync(fd, `${event} ${tag} ${process.hrtime.bigint()}\n`);
const text = t => ({ content: [{ type: 'text', text: t }] });

const echoInput = z.object({ text: z.string() });
const addInput = z.object({ a: z.int(), b: z.int() });
const slowInput = z.object({ seconds: z.number(), tag: z.string(), progress: z.boolean().default(false) });
const extraInput = z.object({ text: z.string(), count: z.int().default(1) });
const extraTools = Number(process.env.BENCH_TOOLS ?? '3') - 3;

function makeServer() {
  const server = new McpServer({ name: 'peer', version: '1' });
  server.registerTool('echo', { description: 'Echo the text.', inputSchema: echoInput }, async a => text(a.text));
  server.registerTool('add', { description: 'Add two integers.', inputSchema: addInput }, async a => text(String(a.a + a.b)));
  server.registerTool('slow', { description: 'Sleep.', inputSchema: slowInput }, async (a, ctx) => {
    const token = ctx.mcpReq._meta?.progressToken;
    if (a.progress && token !== undefined)
      await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken: token, progress: 0, total: 1 } });
    mark('start', a.tag);
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, a.seconds * 1000);
      ctx.mcpReq.signal.addEventListener('abort', () => {
        clearTimeout(timer);
        mark('cancelled', a.tag);
        reject(new Error('cancelled'));
      });
    });
    mark('done', a.tag);
    return text(a.tag);
  });
  for (let i = 0; i < extraTools; i++)
    server.registerTool(`tool_${i}`, { description: `Extra tool number ${i}`, inputSchema: extraInput }, async a =>
      text(a.text.repeat(a.count)));
  return server;
}

if (process.argv[2] === 'http') {
  // Stateless, as its documentation has it: a server is built for each request.
  const handle = toNodeHandler(createMcpHandler(makeServer));
  createServer((request, response) => handle(request, response)).listen(Number(process.argv[3]), '127.0.0.1');
} else {
  serveStdio(makeServer);
}
