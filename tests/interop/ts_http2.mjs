// HTTP/2 for the client of `@modelcontextprotocol/client`: a `fetch` on undici, which speaks it where Node's own does
// not. It writes down what goes over it, as `http_log.py` does.
import { subscribe } from 'node:diagnostics_channel';
import { appendFileSync, readFileSync } from 'node:fs';
import { Agent, fetch } from 'undici';

let taps = 0;

// Messages in the body of a response, by its media type.
function* messages(kind, state, chunk) {
  state.rest += chunk;
  if (!kind.startsWith('text/event-stream')) return;
  const events = state.rest.replaceAll('\r\n', '\n').split('\n\n');
  state.rest = events.pop();
  for (const event of events) {
    const data = event.split('\n').filter(line => line.startsWith('data:'));
    if (data.length) yield data.map(line => line.slice(5).replace(/^ /, '')).join('\n');
  }
}

export function recordingFetch(certfile, log) {
  subscribe('undici:client:connected', ({ socket }) => {
    if (socket.alpnProtocol !== 'h2') throw new Error(`not HTTP/2 but ${socket.alpnProtocol}`);
  });
  const dispatcher = new Agent({ allowH2: true, connect: { ca: readFileSync(certfile) } });
  const write = entry => appendFileSync(log, JSON.stringify(entry) + '\n');

  return async (url, init) => {
    const tap = process.pid * 1_000_000 + ++taps;
    const note = (sender, more) => write({ sender, ns: Number(process.hrtime.bigint()), tap, ...more });
    if (init.body) note('client', { line: init.body });
    init.signal?.addEventListener('abort', () => note('client', { line: '', closed: true }));
    const response = await fetch(url, { ...init, dispatcher });
    const kind = response.headers.get('content-type') ?? '';
    const decoder = new TextDecoder();
    const state = { rest: '' };
    const recorder = new TransformStream({
      transform(chunk, controller) {
        for (const line of messages(kind, state, decoder.decode(chunk, { stream: true }))) note('server', { line });
        controller.enqueue(chunk);
      },
      flush() {
        if (kind.startsWith('application/json') && state.rest) note('server', { line: state.rest });
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body?.pipeThrough(recorder), { status, statusText, headers: [...headers] });
  };
}
