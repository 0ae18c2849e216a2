// Prints the JSON Schema of revision 2026-07-28, which the conformance suite carries inside its bundle.
//   node extract_schema.mjs FOLDER       FOLDER: where `npm install` was run
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const folder = process.argv[2];
const { parse } = createRequire(join(folder, 'package.json'))('acorn');
const bundle = readFileSync(join(folder, 'node_modules/@modelcontextprotocol/conformance/dist/index.js'), 'utf8');
const tree = parse(bundle, { ecmaVersion: 'latest', sourceType: 'module', allowHashBang: true });

// Only this revision has it.
const MARK = 'SubscriptionsListenRequest';
const nameOf = property => (property.type === 'Property' ? (property.key.name ?? property.key.value) : undefined);
const member = (object, name) => object.properties?.find(property => nameOf(property) === name)?.value;

function* schemas(node) {
  if (node === null || typeof node !== 'object') return;
  if (node.type === 'ObjectExpression') {
    const definitions = member(node, '$defs') ?? member(node, 'definitions');
    if (definitions && member(definitions, MARK)) yield node;
  }
  for (const value of Object.values(node)) yield* schemas(value);
}

// The value of a literal. Nothing of the bundle is run.
function valueOf(node) {
  switch (node.type) {
    case 'ObjectExpression':
      return Object.fromEntries(node.properties.map(property => [nameOf(property), valueOf(property.value)]));
    case 'ArrayExpression':
      return node.elements.map(valueOf);
    case 'Literal':
      return node.value;
    case 'TemplateLiteral':
      if (node.expressions.length === 0) return node.quasis[0].value.cooked;
      break;
    case 'UnaryExpression':
      if (node.operator === '!') return !valueOf(node.argument); // minified true and false
      if (node.operator === '-') return -valueOf(node.argument);
      break;
  }
  throw new Error(`not a literal: ${bundle.slice(node.start, node.start + 60)}`);
}

const found = [...schemas(tree)];
if (found.length !== 1) throw new Error(`expected one schema with ${MARK} in the bundle, found ${found.length}`);
process.stdout.write(JSON.stringify(valueOf(found[0])));
