// The server on the TypeScript SDK.
import { openSync, writeSync } from 'node:fs';
import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const fd = openSync(process.env.SLOW_LOG ?? '/dev/null', 'a');
const mark = (event, tag) => writeSync(fd, `${event} ${tag} ${process.hrtime.bigint()}\n`);
const text = t => ({ content: [{ type: 'text', text: t }] });

const echoInput = z.object({ text: z.string() });
const addInput = z.object({ a: z.int(), b: z.int() });
const slowInput = z.object({ seconds: z.number(), tag: z.string() });

function makeServer() {
  const server = new McpServer({ name: 'peer', version: '1' });
  server.registerTool('echo', { description: 'Echo the text.', inputSchema: echoInput }, async a => text(a.text));
  server.registerTool('add', { description: 'Add two integers.', inputSchema: addInput }, async a => text(String(a.a + a.b)));
  server.registerTool('slow', { description: 'Sleep.', inputSchema: slowInput }, async (a, ctx) => {
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
  return server;
}

serveStdio(makeServer);
