// A server on `@modelcontextprotocol/server` that asks the user, and changes, for our client. `rounds_server.py` does
// the same.
//   node ts_rounds_server.mjs                  on stdio
//   node ts_rounds_server.mjs --http           on HTTP/1.1; prints the URL
// At SIGTERM it ends what is listened to, and then itself.
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  McpServer,
  acceptedContent,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
} from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import * as z from 'zod';

const WHO = z.object({ name: z.string(), age: z.int() });
const SURE = z.object({ sure: z.boolean() });
const mark = event => appendFileSync(process.env.MARKS, `${event}\n`);
const text = value => ({ content: [{ type: 'text', text: value }] });
const codec = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });

// The answers so far. Each round brings only those to its own questions, so the others travel in the state.
const answersOf = ctx => ({ ...ctx.mcpReq.requestState(), ...ctx.mcpReq.inputResponses });
const ask = async (inputRequests, answers) => inputRequired({ inputRequests, requestState: await codec.mint(answers) });

async function plan({ place }, ctx) {
  const answers = answersOf(ctx);
  const who = acceptedContent(answers, 'who', WHO);
  const elicit = (message, requestedSchema) => inputRequired.elicit({ message, requestedSchema });
  if (!who) return ask({ who: elicit(`Who goes to ${place}?`, WHO) }, answers);
  const sure = acceptedContent(answers, 'sure', SURE);
  if (!sure) {
    const content = { type: 'text', text: `A verse on ${place} for ${who.name}.` };
    const verse = inputRequired.createMessage({ messages: [{ role: 'user', content }], maxTokens: 50 });
    return ask({ sure: elicit('Is that all?', SURE), verse }, answers);
  }
  const { verse, roots } = answers;
  if (!roots) return ask({ roots: inputRequired.listRoots() }, answers);
  mark('run');
  const structuredContent = { who, sure, verse: [verse.role, verse.content.text, verse.model], roots: roots.roots };
  return { ...text('planned'), structuredContent };
}

// Asks for a name once; what is made of it is for the caller.
function named(ctx, message, make) {
  const name = acceptedContent(answersOf(ctx), 'name', z.object({ name: z.string() }));
  if (name) return make(name.name);
  const requestedSchema = z.object({ name: z.string() });
  return inputRequired({ inputRequests: { name: inputRequired.elicit({ message, requestedSchema }) } });
}

// Over HTTP each request has a server of its own, and those who listen are told by `changes`.
function serverFactory(changes) {
  const grown = [];
  const says = name => () => text(`I am ${name}`);

  return () => {
    const server = new McpServer(
      { name: 'theirs', version: '1.0' },
      { capabilities: { resources: { subscribe: true } }, requestState: { verify: codec.verify } },
    );
    const none = z.object({});
    // `register` is for tools without arguments.
    const register = (name, description, run) => server.registerTool(name, { description, inputSchema: none }, run);
    server.registerTool('plan', { description: 'Plan a trip.', inputSchema: z.object({ place: z.string() }) }, plan);
    register('ask_once', 'Ask, and say what the user did instead of answering.', (_, ctx) => {
      const answer = inputResponse(ctx.mcpReq.inputResponses, 'really');
      if (answer.kind === 'elicit') return text(answer.action);
      const really = inputRequired.elicit({ message: 'Really?', requestedSchema: SURE });
      return inputRequired({ inputRequests: { really } });
    });
    register('visit', 'Ask to visit a page.', (_, ctx) => {
      const answer = inputResponse(ctx.mcpReq.inputResponses, 'page');
      if (answer.kind === 'elicit') return text(answer.action);
      const page = inputRequired.elicitUrl({ message: 'Please pay.', url: 'https://pay.example/1' });
      return inputRequired({ inputRequests: { page } });
    });
    register('later', 'Ask for nothing but another call.', async (_, ctx) =>
      ctx.mcpReq.requestState() ? text('now') : inputRequired({ requestState: await codec.mint({ seen: true }) }),
    );
    const name = z.object({ name: z.string() });
    server.registerTool('grow', { description: 'Register another tool.', inputSchema: name }, a => {
      grown.push(a.name);
      if (changes) changes().toolsChanged();
      else register(a.name, 'New.', says(a.name));
      return text('grown');
    });
    const uri = z.object({ uri: z.string() });
    server.registerTool('touch', { description: 'Say that a resource has changed.', inputSchema: uri }, async a => {
      if (changes) changes().resourceUpdated(a.uri);
      else await server.server.sendResourceUpdated(a);
      return text('touched');
    });
    register('process_id', 'The number of this process.', () => text(String(process.pid)));
    for (const one of grown) register(one, 'New.', says(one));

    server.registerResource('today', 'note://today', {}, url => ({ contents: [{ uri: url.href, text: 'all quiet' }] }));
    server.registerResource('mine', 'note://mine', {}, (url, ctx) =>
      named(ctx, 'Whose note?', name => ({ contents: [{ uri: url.href, text: `The note of ${name}` }] })),
    );
    server.registerPrompt('letter', { description: 'Write a letter.' }, ctx =>
      named(ctx, 'To whom?', name => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Write to ${name}` } }],
      })),
    );
    return server;
  };
}

function serveHttp() {
  const handler = createMcpHandler(serverFactory(() => handler.notify));
  const server = createServer(toNodeHandler(handler));
  server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
  return async () => {
    server.close();
    await handler.close();
  };
}

process.once('SIGTERM', process.argv[2] === '--http' ? serveHttp() : serveStdio(serverFactory()).close);
