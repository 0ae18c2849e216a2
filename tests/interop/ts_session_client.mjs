// The client of `@modelcontextprotocol/sdk` 1.x opens a session, goes through what a server of ours offers and prints what it
// got, as one JSON object.
//   node ts_session_client.mjs REVISION MARKS command ...              over stdio
//   node ts_session_client.mjs REVISION MARKS URL                      over HTTP
// REVISION is what it asks for in `initialize`, MARKS the file where the server marks the start and end of `slow`.
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';

const [revision, marks, command, ...args] = process.argv.slice(2);
const overHttp = command.startsWith('http');

async function waitFor(condition) {
  for (let left = 1000; left > 0; left--) {
    if (condition()) return true;
    await sleep(10);
  }
  return false;
}

const marked = event => waitFor(() => existsSync(marks) && readFileSync(marks, 'utf8').includes(event));

async function rejected(call) {
  try {
    await call;
  } catch (error) {
    return error.code;
  }
  return 'answered';
}

// GETs that take up a stream where it ended.
let cameBack = 0;
function countingFetch(url, init) {
  if (init?.method === 'GET' && new Headers(init.headers).has('last-event-id')) cameBack++;
  return fetch(url, init);
}

const told = [];
let answer = 'accept';
let folders = ['file:///one'];
const client = new Client(
  { name: 'ts-session-client', version: '1.0' },
  { capabilities: { elicitation: { form: {} }, sampling: {}, roots: { listChanged: true } } },
);
client.setRequestHandler(ElicitRequestSchema, () =>
  answer === 'accept' ? { action: answer, content: { name: 'Ada' } } : { action: answer },
);
client.setRequestHandler(CreateMessageRequestSchema, () => ({
  role: 'assistant',
  content: { type: 'text', text: 'Paris' },
  model: 'none',
}));
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: folders.map(uri => ({ uri })) }));
client.fallbackNotificationHandler = async note => {
  told.push(note);
};
const heard = method => told.filter(note => note.method === method).map(note => note.params);

const transport = overHttp
  ? new StreamableHTTPClientTransport(new URL(command), { fetch: countingFetch })
  : new StdioClientTransport({ command, args, env: { ...process.env } });
// It always asks for the newest that it knows.
const send = transport.send.bind(transport);
let agreed;
transport.send = (message, ...more) =>
  message.method === 'initialize'
    ? send({ ...message, params: { ...message.params, protocolVersion: revision } }, ...more)
    : send(message, ...more);
transport.setProtocolVersion = (own => version => {
  agreed = version;
  own?.call(transport, version);
})(transport.setProtocolVersion);
await client.connect(transport);

const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, undefined, options);
const said = async (...given) => (await call(...given)).content[0].text;
const out = { revision: agreed, server: client.getServerVersion().name };
out.tools = (await client.listTools()).tools.map(tool => tool.name);
out.resource = (await client.readResource({ uri: 'note://today' })).contents[0].text;
out.echo = await said('echo', { text: 'naïve ☃\n' });
out.data = (await call('numbers')).structuredContent ?? null;
const failed = await call('fail');
out.fail = [failed.isError, failed.content[0].text];
out['unknown tool'] = await rejected(call('ech'));
out.visit = await rejected(call('visit'));
out['unknown resource'] = await rejected(client.readResource({ uri: 'none://at/all' }));
const steps = [];
await call('count', {}, {
  onprogress: one => {
    steps.push([one.progress, one.total]);
    void call('go_on');
  },
});
out.progress = steps;
await client.setLoggingLevel('warning');
await call('grumble');
out.log = heard('notifications/message').map(line => line.level);
if (revision < '2025-06-18') {
  out.elicit = await rejected(call('name'));
} else {
  out.elicit = [];
  for (answer of ['accept', 'decline', 'cancel']) out.elicit.push(await said('name'));
}
out.sample = await said('think');
out.roots = [await said('places')];
folders = ['file:///one', 'file:///two'];
await client.sendRootsListChanged();
out.roots.push(await said('places'));

await client.subscribeResource({ uri: 'note://today' });
await call('touch');
await waitFor(() => heard('notifications/resources/updated').length > 0);
await client.unsubscribeResource({ uri: 'note://today' });
await call('touch');
await call('grow');
out['list changed'] = await waitFor(() => heard('notifications/tools/list_changed').length > 0);
// Both come in order, so a second one would be here by now.
out.updated = heard('notifications/resources/updated').map(note => note.uri);

const stop = new AbortController();
const stopped = rejected(call('slow', {}, { signal: stop.signal }));
await marked('start');
stop.abort('enough');
out.cancelled = [(await stopped) !== 'answered', await marked('cancelled')];

if (revision >= '2025-11-25') {
  const { tasks } = client.experimental;
  const as = { task: { ttl: 60000 } };
  for await (const one of tasks.callToolStream({ name: 'job', arguments: {} }, undefined, as)) {
    if (one.type === 'taskCreated') out.task = [one.task.taskId];
    if (one.type === 'result') out.task.push(one.result.content[0].text);
  }
  const [id] = out.task;
  out.task[0] = (await tasks.listTasks()).tasks.some(task => task.taskId === id);
  for await (const one of tasks.callToolStream({ name: 'job', arguments: { wait: true } }, undefined, as)) {
    if (one.type !== 'taskCreated') continue;
    out.task.push((await tasks.cancelTask(one.task.taskId)).status);
    break;
  }
}
const before = cameBack;
out.polled = await said('polled');
out['came back'] = cameBack > before;
if (overHttp) {
  const headers = {
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
    'mcp-session-id': transport.sessionId,
  };
  await transport.terminateSession();
  const ping = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' });
  out['after DELETE'] = (await fetch(command, { method: 'POST', headers, body: ping })).status;
}
await client.close();
process.stdout.write(JSON.stringify(out) + '\n');
