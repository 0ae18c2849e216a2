// The client of `@modelcontextprotocol/client` goes through everything that a server offers and prints what it got,
// as one JSON object.
//   node ts_client.mjs MODE MARKS command ...              over stdio
//   node ts_client.mjs MODE MARKS URL                      over HTTP/1.1
//   node ts_client.mjs MODE MARKS URL CERTFILE LOG         over HTTP/2 with TLS, written down in LOG
// MODE is "auto" or a revision, MARKS the file where the server marks the start and end of `slow`.
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { recordingFetch } from './ts_http2.mjs';

const [mode, marks, command, ...args] = process.argv.slice(2);

async function serverHeard(event) {
  for (let left = 1000; left > 0; left--) {
    if (existsSync(marks) && readFileSync(marks, 'utf8').includes(event)) return true;
    await sleep(10);
  }
  return false;
}

async function cancelSlow(client) {
  const progress = [];
  const stop = new AbortController();
  let cancelled = false;
  try {
    await client.callTool(
      { name: 'slow', arguments: {} },
      {
        signal: stop.signal,
        onprogress: p => {
          progress.push([p.progress, p.total, p.message]);
          stop.abort('enough');
        },
      },
    );
  } catch {
    cancelled = stop.signal.aborted;
  }
  return { progress, cancelled, 'server heard': await serverHeard('cancelled') };
}

async function rejected(call) {
  try {
    await call;
  } catch (error) {
    return { code: error.code, message: error.message };
  }
  return {};
}

function transport() {
  if (!command.startsWith('http')) return new StdioClientTransport({ command, args, env: { ...process.env } });
  return new StreamableHTTPClientTransport(new URL(command), args.length ? { fetch: recordingFetch(...args) } : {});
}

const client = new Client(
  { name: 'ts-client', version: '1.0' },
  { versionNegotiation: { mode: mode === 'auto' ? 'auto' : { pin: mode } } },
);
await client.connect(transport());
const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
const out = {};
out.revision = client.getNegotiatedProtocolVersion();
out.server = client.getServerVersion();
out.capabilities = client.getServerCapabilities();
out.instructions = client.getInstructions();
out.tools = (await client.listTools()).tools;
out.resources = (await client.listResources()).resources;
out.templates = (await client.listResourceTemplates()).resourceTemplates;
out.prompts = (await client.listPrompts()).prompts;
out.echo = await call('echo', { text: 'naïve ☃\n' });
out.add = await call('add', { a: 2, b: 40 });
out.picture = await call('picture', {});
out.fail = await call('fail', {});
out['wrong arguments'] = await call('add', { a: 'two' });
out['unknown tool'] = await rejected(call('ad', {}));
const heard = [];
const goOn = p => {
  heard.push([p.progress, p.total, p.message]);
  void call('go_on', {});
};
out.progress = await call('progress', {}, { onprogress: goOn });
out['progress heard'] = heard;
out.resource = (await client.readResource({ uri: 'note://today' })).contents;
out['templated resource'] = (await client.readResource({ uri: 'note://day/monday' })).contents;
out['unknown resource'] = await rejected(client.readResource({ uri: 'none://at/all' }));
out.prompt = await client.getPrompt({ name: 'review', arguments: { code: 'x = 1' } });
out['cancelled call'] = await cancelSlow(client);
out['echo after it'] = await call('echo', { text: 'still here' });
await client.close();
process.stdout.write(JSON.stringify(out) + '\n');
