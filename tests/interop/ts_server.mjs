// A server on `@modelcontextprotocol/server`, for our client. It offers what `our_server.py` offers.
//   node ts_server.mjs                         on stdio
//   node ts_server.mjs --http                  on HTTP/1.1; prints the URL
//   node ts_server.mjs --http CERTFILE         on HTTP/2 with TLS and nothing else; the file has the key too
//   node ts_server.mjs --http CERTFILE COUNT   the same, and says how many streams a client may have at once
import { appendFileSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createSecureServer } from 'node:http2';
import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, ResourceTemplate, createMcpHandler } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg+M/AAAADAQEAyf6S7wAAAABJRU5ErkJggg==';
const mark = event => appendFileSync(process.env.MARKS, `${event} ${process.hrtime.bigint()}\n`);
const text = value => ({ content: [{ type: 'text', text: value }] });

let goOn;
const gate = () => new Promise(resolve => (goOn = resolve));

async function report(ctx, progress, total, message) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total, message } });
}

function makeServer() {
  const server = new McpServer({ name: 'theirs', version: '1.0' }, { instructions: 'Ask and it answers.' });

  server.registerTool('echo', { description: 'Say it again.', inputSchema: z.object({ text: z.string() }) }, a =>
    text(a.text),
  );
  server.registerTool(
    'add',
    {
      description: 'Add two numbers.',
      inputSchema: z.object({ a: z.int(), b: z.int() }),
      outputSchema: z.object({ result: z.int() }),
    },
    a => ({ ...text(String(a.a + a.b)), structuredContent: { result: a.a + a.b } }),
  );
  server.registerTool(
    'progress',
    { description: 'Report three steps; after each, wait for a call of `go_on`.', inputSchema: z.object({}) },
    async (_, ctx) => {
      for (const step of [1, 2, 3]) {
        const next = gate();
        await report(ctx, step, 3, `step ${step}`);
        await next;
      }
      return text('three steps');
    },
  );
  server.registerTool('go_on', { description: 'Let `progress` go on.', inputSchema: z.object({}) }, () => {
    goOn();
    return text('gone on');
  });
  server.registerTool('slow', { description: 'Take 30 seconds.', inputSchema: z.object({}) }, async (_, ctx) => {
    mark('start');
    const ended = new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, 30_000);
      ctx.mcpReq.signal.addEventListener('abort', () => {
        clearTimeout(timer);
        mark('cancelled');
        reject(new Error('cancelled'));
      });
    });
    await report(ctx, 1, 2, 'started');
    await ended;
    mark('done');
    return text('slept');
  });
  server.registerTool('fail', { description: 'Fail.', inputSchema: z.object({}) }, () => {
    throw new Error('it is broken');
  });
  server.registerTool('picture', { description: 'Show one pixel.', inputSchema: z.object({}) }, () => ({
    content: [{ type: 'image', data: PIXEL, mimeType: 'image/png' }],
  }));

  server.registerResource('today', 'note://today', { mimeType: 'text/plain' }, uri => ({
    contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'all quiet' }],
  }));
  server.registerResource(
    'note',
    new ResourceTemplate('note://day/{day}', { list: undefined }),
    { mimeType: 'text/plain' },
    (uri, { day }) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: `nothing on ${day}` }] }),
  );

  server.registerPrompt(
    'review',
    {
      description: 'Ask for a code review.',
      argsSchema: z.object({ code: z.string(), language: z.string().default('Python') }),
    },
    ({ code, language }) => ({
      messages: [{ role: 'user', content: { type: 'text', text: `Review this ${language} code: ${code}` } }],
    }),
  );
  return server;
}

function serveHttp(certfile, count) {
  const handle = toNodeHandler(createMcpHandler(makeServer));
  const pem = certfile && readFileSync(certfile);
  const settings = count ? { maxConcurrentStreams: Number(count) } : {};
  const server = pem ? createSecureServer({ cert: pem, key: pem, settings }, handle) : createServer(handle);
  const scheme = pem ? 'https' : 'http';
  server.listen(0, '127.0.0.1', () => console.log(`${scheme}://127.0.0.1:${server.address().port}/mcp`));
}

const [where, ...options] = process.argv.slice(2);
if (where === '--http') serveHttp(...options);
else serveStdio(makeServer);
