// Job files, YAML or JSON: from bytes to a checked job, with every mistake at its line. JSON is read as YAML, whose
// flow style contains it.
import { open } from 'node:fs/promises'
import { parseJob } from '@starling-grid/model'
import {
  describeError,
  GridError,
  type JobSpec,
  MAX_JSON_DEPTH,
  MAX_JSON_VALUES,
  type Mistake,
  MistakesError,
  mistakeText,
  type Path,
} from '@starling-grid/protocol'
import {
  Composer,
  CST,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  Parser,
  type YAMLError,
} from 'yaml'

/** Bytes of a job file: what the coordinator takes as one submission (coordinator/src/api/bodies.ts). */
const MAX_FILE_BYTES = 512 * 1024
/** Values that aliases (`*name`) may make of one value; YAML can make billions of a few lines. */
const MAX_ALIAS_VALUES = 100

export interface JobFile {
  /** paths of its dataset as they are written: relative to what, the command decides */
  readonly job: JobSpec
  /** The same refusal with the lines of this file, also of what only the coordinator finds. */
  readonly located: (error: MistakesError) => GridError
}

/** @throws GridError 'job-invalid' with a line for each mistake: file, line, column, path, expected, found and hint */
export async function readJobFile(file: string): Promise<JobFile> {
  const text = await readBounded(file)
  const { document, lines } = parsed(text, file)
  const located = (error: MistakesError): GridError =>
    new GridError(
      error.code,
      error.mistakes.map((mistake) => locatedText(mistake, file, { document, lines })).join('\n'),
    )
  try {
    return { job: parseJob(valueOf(document, file)), located }
  } catch (error) {
    throw error instanceof MistakesError ? located(error) : error
  }
}

/** The dataset with each path that it names changed. */
export function locatedDataset(dataset: JobSpec['dataset'], path: (named: string) => string): JobSpec['dataset'] {
  switch (dataset.source) {
    case undefined:
    case 'named':
    case 'digits':
      return dataset
    case 'mnist':
      return { ...dataset, folder: path(dataset.folder) }
    case 'text':
      return { ...dataset, path: path(dataset.path) }
    default:
      return dataset satisfies never
  }
}

async function readBounded(file: string): Promise<string> {
  const handle = await open(file).catch((cause: unknown) => {
    throw unreadable(file, cause)
  })
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_FILE_BYTES + 1), 0, MAX_FILE_BYTES + 1, 0)
    if (bytesRead > MAX_FILE_BYTES)
      throw new GridError('job-invalid', `expected a job file of at most ${MAX_FILE_BYTES} bytes, got more in ${file}`)
    return new TextDecoder('utf-8', { fatal: true }).decode(buffer.subarray(0, bytesRead))
  } catch (cause) {
    throw cause instanceof GridError ? cause : unreadable(file, cause)
  } finally {
    await handle.close()
  }
}

function unreadable(file: string, cause: unknown): GridError {
  const got = `${file} (${describeError(cause)})`
  return new GridError('job-invalid', `expected a job file, got ${got}; name one that can be read`, { cause })
}

interface ParsedFile {
  readonly document: Document.Parsed
  readonly lines: LineCounter
}

/** Depth and number of values are measured before anything is built of them. */
function parsed(text: string, file: string): ParsedFile {
  const lines = new LineCounter()
  const tokens = [...new Parser(lines.addNewLine).parse(text)]
  for (const token of tokens) requireBounded(token, file)
  const [document, ...others] = new Composer({
    version: '1.2',
    strict: true,
    uniqueKeys: true,
    lineCounter: lines,
  }).compose(tokens, true, text.length)
  if (document === undefined || others.length > 0)
    throw new GridError('job-invalid', `expected one job in ${file}, got ${1 + others.length} documents; keep one`)
  const wrong = [...document.errors, ...document.warnings]
  if (wrong.length > 0)
    throw new GridError('job-invalid', wrong.map((error) => syntaxText(error, file, lines)).join('\n'))
  return { document: document as Document.Parsed, lines }
}

function syntaxText({ message, pos: [at] }: YAMLError, file: string, lines: LineCounter): string {
  const { line, col } = lines.linePos(at)
  return `${file}:${line}:${col}: expected YAML or JSON, got what cannot be read: ${message.split('\n')[0]}`
}

/** Walks with a list of its own: a recursive walk of 100,000 brackets would exhaust the stack. */
function requireBounded(root: CST.Token, file: string): void {
  const waiting: { token: CST.Token; depth: number }[] = [{ token: root, depth: 0 }]
  let values = 0
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { token, depth } = next
    values++
    if (depth > MAX_JSON_DEPTH || values > MAX_JSON_VALUES)
      throw new GridError(
        'job-invalid',
        `expected at most ${MAX_JSON_DEPTH} levels and ${MAX_JSON_VALUES} keys and values in ${file}, ` +
          'got more; use fewer',
      )
    for (const inner of tokensInside(token))
      waiting.push({ token: inner, depth: depth + (CST.isCollection(token) ? 1 : 0) })
  }
}

function tokensInside(token: CST.Token): CST.Token[] {
  if (token.type === 'document') return token.value === undefined ? [] : [token.value]
  if (!CST.isCollection(token)) return []
  return token.items.flatMap(({ key, value }) => [key ?? [], value ?? []].flat())
}

function valueOf(document: Document.Parsed, file: string): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIAS_VALUES })
  } catch (cause) {
    throw new GridError(
      'job-invalid',
      `expected aliases of values before them, of at most ${MAX_ALIAS_VALUES} values in all, in ${file}, ` +
        `got: ${describeError(cause)}`,
      { cause },
    )
  }
}

function locatedText(mistake: Mistake, file: string, { document, lines }: ParsedFile): string {
  const { line, col } = lines.linePos(offsetOf(document, mistake.path))
  return `${file}:${line}:${col}: ${mistakeText(mistake)}`
}

/** Where the key or the entry stands; where it is missing, what should hold it. */
function offsetOf(document: Document.Parsed, path: Path): number {
  let node: Node | null | undefined = document.contents
  let offset = node?.range?.[0] ?? 0
  for (const key of path) {
    const step: NodeOfKey | undefined = stepInto(isAlias(node) ? node.resolve(document) : node, key)
    if (step === undefined) return offset
    offset = step.at?.range?.[0] ?? offset
    node = step.inner
  }
  return offset
}

interface NodeOfKey {
  /** what a reader looks for: the key, or the entry of a list */
  readonly at: Node | undefined
  readonly inner: Node | undefined
}

function stepInto(node: Node | null | undefined, key: string | number): NodeOfKey | undefined {
  if (isSeq<Node>(node) && typeof key === 'number') return { at: node.items[key], inner: node.items[key] }
  if (!isMap<Node, Node>(node)) return undefined
  const pair = node.items.find((item) => isScalar(item.key) && String(item.key.value) === key)
  return pair && { at: pair.key, inner: pair.value ?? undefined }
}
