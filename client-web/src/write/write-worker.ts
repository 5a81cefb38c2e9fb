// The Worker that writes text with a version of a job's model. It fetches the base once, and another version of the
// same job brings its adapters alone. All computing of a visitor who tries a model takes place here.
import { type ModelFile, modelHash, readModelFile } from '@starling-grid/model'
import {
  DEFAULT_TOKENS,
  textTokens,
  type TextWriter,
  type WritingOptions,
  writtenText,
} from '@starling-grid/model/text'
import {
  type AdapterDescription,
  GridError,
  MAX_SHARD_BYTES,
  pathTo,
  ROUTES,
  type Sha256,
} from '@starling-grid/protocol'
import {
  createGpuDecoder,
  decodes,
  type NextTokens,
  openBaseModel,
  windowDecoder,
  writingContext,
} from '@starling-grid/volunteer/language'
import { chooseExecutor, openOnGpu, readText, say } from '../computing.ts'
import { openDevice } from '../gpu.ts'
import { openShardCache } from '../shard-cache.ts'
import { failureOf, type TabExecutor } from '../worker-messages.ts'
import { fetched } from './fetched.ts'
import type { AskedText, FromWriter, ToWriter, WhyEnded } from './write-messages.ts'

type Opening = Extract<ToWriter, { type: 'open' }>
type WriteOrder = Extract<ToWriter, { type: 'write' }>

interface LoadedModel {
  /** what of it cannot change between versions */
  readonly hash: string
  readonly decoder: NextTokens
  readonly adapter: AdapterDescription
  readonly writer: TextWriter
  readonly chat: ModelFile['chat']
}

/** Bytes of an exported model: as large as any within the limits is. */
const MOST_MODEL_BYTES = 1024 * 1024 * 1024

const tell = (message: FromWriter): void => postMessage(message)
let model: LoadedModel | undefined
let isStopped = false
/** one after the other: a version is not taken in the midst of a text */
let last: Promise<void> = Promise.resolve()

addEventListener('message', ({ data }: MessageEvent<ToWriter>) => {
  if (data.type === 'stop') isStopped = true
  else last = last.then(() => attempt(() => (data.type === 'open' ? open(data) : write(data))))
})

async function attempt(task: () => Promise<void>): Promise<void> {
  try {
    await task()
  } catch (error) {
    tell({ type: 'failed', failure: failureOf(error), isOpen: model !== undefined })
  }
}

async function open(opening: Opening): Promise<void> {
  const { job, token, version, limits } = opening
  const query = version === undefined ? '' : `?version=${version}`
  const bytes = await fetched(pathTo(ROUTES.export, { id: job }) + query, {
    token,
    most: Math.min(MOST_MODEL_BYTES, limits.memoryBytes),
    cure: 'raise Memory under Limits on the page Contribute',
    onProgress: (done, total) => tell({ type: 'loading', what: 'model', done, total }),
  })
  const file = readModelFile(bytes, `the model of ${job}`)
  const hash = modelHash(file.spec)
  if (model?.hash !== hash) {
    model?.decoder.destroy()
    model = undefined
    model = await openModel(file, opening)
  }
  model.decoder.loadParameters(file.parameters)
  tell({ type: 'opened', version: file.v ?? 0, adapter: model.adapter })
}

async function openModel(file: ModelFile, opening: Opening): Promise<LoadedModel> {
  const { spec, chat } = file
  const tokens = textTokens(file)
  const { decoder, adapter } = await openDecoder(spec, opening)
  const writer = { logitsAfter: (text: readonly number[]) => decoder.logitsAfter(text), tokens, ends: chat?.ends ?? [] }
  return { hash: modelHash(spec), decoder, adapter, writer, chat }
}

/** The device is asked for its memory before more than a first shard of the base is fetched. */
async function openDecoder(
  spec: ModelFile['spec'],
  { token, limits: { memoryBytes: maxBytes, diskBytes }, executor: asked }: Opening,
): Promise<{ readonly decoder: NextTokens; readonly adapter: AdapterDescription }> {
  tell({ type: 'loading', what: 'device', done: 0, total: 0 })
  const cache = await openShardCache(diskBytes)
  const fetchBytes = (sha256: Sha256): Promise<Uint8Array> =>
    fetched(pathTo(ROUTES.shard, { sha256 }), { token, most: MAX_SHARD_BYTES })
  const frozen = await openBaseModel(spec, { fetchBytes, cache }, (done, total) =>
    tell({ type: 'loading', what: 'base', done, total }),
  )
  const executor: TabExecutor = asked ?? (await chooseExecutor(cache))
  const context = writingContext(spec)
  if (!decodes(spec)) return windowsOn(executor, spec, { cache, maxBytes })
  if (executor === 'wasm') {
    const [{ createWasmDecoder, wasmAdapter }, { wasmThreads }] = await onProcessor()
    const threads = wasmThreads()
    return {
      decoder: await createWasmDecoder(spec, { threads, context, frozen, maxBytes, say }),
      adapter: wasmAdapter(threads),
    }
  }
  const { device, adapter, facts } = await openDevice()
  return {
    decoder: await createGpuDecoder({ device, adapter, facts, spec, context, frozen, maxBytes, readText, say }),
    adapter,
  }
}

/** Models whose layers see more than one token at a time compute the whole context for each. */
async function windowsOn(
  kind: TabExecutor,
  spec: ModelFile['spec'],
  { cache, maxBytes }: { readonly cache: Awaited<ReturnType<typeof openShardCache>>; readonly maxBytes: number },
) {
  const size = { maxMicroBatch: 1, maxBytes }
  const executor =
    kind === 'wasm'
      ? await (await import('../executor-choice.ts')).openOnProcessor(spec, size)
      : await openOnGpu(cache, { spec, ...size })
  return { decoder: windowDecoder(spec, executor), adapter: executor.adapter }
}

/** Loaded only where the processor computes. */
function onProcessor() {
  return Promise.all([import('@starling-grid/volunteer/wasm'), import('../wasm-threads.ts')])
}

async function write({ asked, options }: WriteOrder): Promise<void> {
  if (model === undefined) throw new GridError('message-unexpected', 'expected an open model, got none; open it first')
  isStopped = false
  const prompt = await promptOf(asked, model.chat)
  const pieces = new WrittenPieces()
  for await (const text of writtenText(model.writer, prompt, options)) {
    pieces.add(text)
    await letMessagesIn()
    if (isStopped) break
  }
  pieces.tell()
  tell({ type: 'written', why: isStopped ? 'stopped' : whyEnded(pieces.tokens, options) })
}

function whyEnded(tokens: number, { tokens: most = DEFAULT_TOKENS }: WritingOptions): WhyEnded {
  return tokens < most ? 'model' : 'length'
}

/** ms; a page that draws every token of a fast device answers no click until the text is at its end */
const BETWEEN_PIECES = 50

/** What was written and not told yet. */
class WrittenPieces {
  tokens = 0
  #text = ''
  #first = 0
  #told = { tokens: 0, at: -Infinity }

  add(text: string): void {
    this.#text += text
    const now = performance.now()
    if (this.tokens++ === 0) this.#first = now
    if (now - this.#told.at >= BETWEEN_PIECES) this.tell()
  }

  tell(): void {
    if (this.tokens === this.#told.tokens) return
    const now = performance.now()
    const perSecond = this.tokens === 1 ? 0 : (1000 * (this.tokens - 1)) / Math.max(now - this.#first, 0.1)
    tell({ type: 'piece', text: this.#text, tokens: this.tokens, perSecond })
    this.#text = ''
    this.#told = { tokens: this.tokens, at: now }
  }
}

async function promptOf(asked: AskedText, chat: ModelFile['chat']): Promise<string> {
  if ('prompt' in asked) return asked.prompt
  if (chat?.template === undefined)
    throw new GridError('unsupported', 'expected a model with a chat template, got one without; write a prompt')
  // a template engine: plain texts need none
  const { ChatTemplate } = await import('@starling-grid/model/chat')
  return new ChatTemplate(chat.template, chat.special).render(asked.messages, true)
}

const turn = new MessageChannel()
/** A device that answers at once would keep `stop` waiting until the end of the text. */
function letMessagesIn(): Promise<void> {
  return new Promise((resolve) => {
    turn.port1.onmessage = () => resolve()
    turn.port2.postMessage(null)
  })
}
