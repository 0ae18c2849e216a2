// The client of `@modelcontextprotocol/client` answers questions, or listens, and prints what it got, as one JSON
// object.
//   node ts_rounds_client.mjs ask command ...              over stdio; with a URL instead, over HTTP
//   node ts_rounds_client.mjs listen command ...
//   node ts_rounds_client.mjs end command ...              also: URL CERTFILE LOG, over HTTP/2 with TLS, written down
// With `end` it prints a line as soon as it listens, and the rest when the server has ended that.
import { setTimeout as sleep } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { recordingFetch } from './ts_http2.mjs';

const [what, command, ...args] = process.argv.slice(2);
const FORMS = { 'Who goes to Rome?': { name: 'Ada', age: 36 }, 'Is that all?': { sure: true } };

function transport() {
  if (!command.startsWith('http')) return new StdioClientTransport({ command, args, env: { ...process.env } });
  return new StreamableHTTPClientTransport(new URL(command), args.length ? { fetch: recordingFetch(...args) } : {});
}

const print = value => process.stdout.write(JSON.stringify(value) + '\n');

async function connected(capabilities, prepare) {
  const client = new Client(
    { name: 'ts-client', version: '1.0' },
    { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  );
  prepare(client);
  await client.connect(transport());
  return client;
}

async function ask() {
  const asked = [];
  const client = await connected({ elicitation: { form: {} }, sampling: {}, roots: {} }, client => {
    client.setRequestHandler('elicitation/create', async ({ params }) => {
      asked.push([params.message, Object.keys(params.requestedSchema.properties).sort()]);
      const content = FORMS[params.message];
      return content ? { action: 'accept', content } : { action: 'decline' };
    });
    client.setRequestHandler('sampling/createMessage', async ({ params }) => {
      asked.push([params.messages, params.maxTokens]);
      const content = { type: 'text', text: 'O Rome!' };
      return { role: 'assistant', content, model: 'poet', stopReason: 'endTurn' };
    });
    client.setRequestHandler('roots/list', async () => {
      asked.push('roots');
      return { roots: [{ uri: 'file:///home/ada', name: 'home' }] };
    });
  });
  const plan = await client.callTool({ name: 'plan', arguments: { place: 'Rome' } });
  const declined = await client.callTool({ name: 'ask_once', arguments: {} });
  const revision = client.getNegotiatedProtocolVersion();
  await client.close();
  return { revision, plan: plan.structuredContent, declined: declined.content, asked };
}

// A client that keeps what it is told.
async function listener(changes) {
  return connected({}, client => {
    client.setNotificationHandler('notifications/tools/list_changed', async () => {
      changes.push(['ToolsListChanged', {}]);
    });
    client.setNotificationHandler('notifications/resources/updated', async ({ params }) => {
      changes.push(['ResourceUpdated', { uri: params.uri }]);
    });
  });
}

async function listen() {
  const changes = [];
  const client = await listener(changes);
  const heard = async count => {
    for (let left = 2000; changes.length < count && left > 0; left--) await sleep(10);
  };
  const names = async () => (await client.listTools()).tools.map(tool => tool.name);
  const before = await names();
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['note://today'] });
  await client.callTool({ name: 'touch', arguments: { uri: 'note://other' } });
  await client.callTool({ name: 'touch', arguments: { uri: 'note://today' } });
  await heard(1);
  await client.callTool({ name: 'grow', arguments: { name: 'shoot' } });
  await heard(2);
  await subscription.close();
  const added = (await names()).filter(name => !before.includes(name));
  const says = (await client.callTool({ name: 'shoot', arguments: {} })).content;
  const revision = client.getNegotiatedProtocolVersion();
  await client.close();
  return { revision, honored: subscription.honoredFilter, changes, new: added, says };
}

async function end() {
  const changes = [];
  const client = await listener(changes);
  const pid = (await client.callTool({ name: 'process_id', arguments: {} })).content[0].text;
  const subscription = await client.listen({ toolsListChanged: true, resourceSubscriptions: ['note://today'] });
  await client.callTool({ name: 'touch', arguments: { uri: 'note://today' } });
  print({ process: Number(pid), honored: subscription.honoredFilter });
  const closed = await subscription.closed;
  await client.close();
  return { changes, ended: { graceful: 'gracefully', remote: 'lost' }[closed] ?? closed };
}

print(await { ask, listen, end }[what]());
