// YAML or JSON files that people write: from bytes to a value, within bounds, with the line of every part. JSON is read
// as YAML, whose flow style contains it.
import { open } from 'node:fs/promises'
import {
  describeError,
  type ErrorCode,
  GridError,
  MAX_JSON_DEPTH,
  MAX_JSON_VALUES,
  type Mistake,
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

/** Bytes of a file: of a job what the coordinator takes as one submission (coordinator/src/api/bodies.ts). */
const MAX_FILE_BYTES = 512 * 1024
/** Values that aliases (`*name`) may make of one value; YAML can make billions of a few lines. */
const MAX_ALIAS_VALUES = 100

/** What the file should hold, and the code of its refusal. */
export interface FileKind {
  /** as in "a job" */
  readonly holds: string
  readonly code: ErrorCode
}

export interface YamlFile {
  readonly value: unknown
  /** `file:line:column: …` of the place where the mistake stands, or where it should stand */
  readonly located: (mistake: Mistake) => string
  /** counted from 1 */
  readonly lineOf: (path: Path) => number
}

/** @throws GridError of the kind's code, with file and line where it has one */
export async function readYamlFile(file: string, kind: FileKind): Promise<YamlFile> {
  const { document, lines } = parsed(await readBounded(file, kind), file, kind)
  const placeOf = (path: Path) => lines.linePos(offsetOf(document, path))
  return {
    value: valueOf(document, file, kind),
    located: (mistake) => {
      const { line, col } = placeOf(mistake.path)
      return `${file}:${line}:${col}: ${mistakeText(mistake)}`
    },
    lineOf: (path) => placeOf(path).line,
  }
}

async function readBounded(file: string, kind: FileKind): Promise<string> {
  const handle = await open(file).catch((cause: unknown) => {
    throw unreadable(file, kind, cause)
  })
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(MAX_FILE_BYTES + 1), 0, MAX_FILE_BYTES + 1, 0)
    if (bytesRead > MAX_FILE_BYTES)
      throw new GridError(kind.code, `expected a file of at most ${MAX_FILE_BYTES} bytes, got more in ${file}`)
    return new TextDecoder('utf-8', { fatal: true }).decode(buffer.subarray(0, bytesRead))
  } catch (cause) {
    throw cause instanceof GridError ? cause : unreadable(file, kind, cause)
  } finally {
    await handle.close()
  }
}

function unreadable(file: string, { holds, code }: FileKind, cause: unknown): GridError {
  return new GridError(
    code,
    `expected a file with ${holds}, got ${file} (${describeError(cause)}); name one that can be read`,
    { cause },
  )
}

interface ParsedFile {
  readonly document: Document.Parsed
  readonly lines: LineCounter
}

/** Depth and number of values are measured before anything is built of them. */
function parsed(text: string, file: string, kind: FileKind): ParsedFile {
  const lines = new LineCounter()
  const tokens = [...new Parser(lines.addNewLine).parse(text)]
  for (const token of tokens) requireBounded(token, file, kind)
  const [document, ...others] = new Composer({
    version: '1.2',
    strict: true,
    uniqueKeys: true,
    lineCounter: lines,
  }).compose(tokens, true, text.length)
  if (document === undefined || others.length > 0)
    throw new GridError(kind.code, `expected one document in ${file}, got ${1 + others.length}; keep one`)
  const wrong = [...document.errors, ...document.warnings]
  if (wrong.length > 0) throw new GridError(kind.code, wrong.map((error) => syntaxText(error, file, lines)).join('\n'))
  return { document: document as Document.Parsed, lines }
}

function syntaxText({ message, pos: [at] }: YAMLError, file: string, lines: LineCounter): string {
  const { line, col } = lines.linePos(at)
  return `${file}:${line}:${col}: expected YAML or JSON, got what cannot be read: ${message.split('\n')[0]}`
}

/** Walks with a list of its own: a recursive walk of 100,000 brackets would exhaust the stack. */
function requireBounded(root: CST.Token, file: string, { code }: FileKind): void {
  const waiting: { token: CST.Token; depth: number }[] = [{ token: root, depth: 0 }]
  let values = 0
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { token, depth } = next
    values++
    if (depth > MAX_JSON_DEPTH || values > MAX_JSON_VALUES)
      throw new GridError(
        code,
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

function valueOf(document: Document.Parsed, file: string, { code }: FileKind): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIAS_VALUES })
  } catch (cause) {
    throw new GridError(
      code,
      `expected aliases of values before them, of at most ${MAX_ALIAS_VALUES} values in all, in ${file}, ` +
        `got: ${describeError(cause)}`,
      { cause },
    )
  }
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
