// The far end of a link under test, as a small set of commands with JSON arguments and answers. A test drives it in its
// own process, in another one, or in a page.
import { packFrame, unpackFrame } from '@starling-grid/protocol'
import type { PeerLink } from '../src/link/peer-link.ts'

/** What a far end has seen of numbered frames. */
export interface FramesSeen {
  readonly count: number
  readonly inOrder: boolean
  /** every frame unpacked, so its checksum agreed */
  readonly intact: boolean
}

export interface FarEnd {
  /** Begins to read; before that, frames wait in the link. */
  read(): Promise<void>
  sendNumbered(count: number, payloadBytes: number): Promise<void>
  waitForFrames(count: number): Promise<void>
  frames(): Promise<FramesSeen>
  waitForClose(): Promise<void>
  /** the reasons of all closes seen: one, when all is well */
  closes(): Promise<readonly string[]>
  close(reason: string): Promise<void>
}

/** Milliseconds that a far end waits for frames or a close. */
const PATIENCE_MS = 20_000

/** A frame whose step is its number and whose payload depends on it. */
export function numberedFrame(index: number, payloadBytes: number): Uint8Array<ArrayBuffer> {
  const payload = new Uint8Array(payloadBytes).fill(index & 0xff)
  return packFrame({ type: 'chunk', generation: 1, step: index, bucket: 0, hop: 0, offset: 0, payload })
}

/** Drives `link` as the far end of a test. */
export function farEndOf(link: PeerLink): FarEnd {
  const seen = { count: 0, inOrder: true, intact: true }
  const closes: string[] = []
  link.onClose = (reason) => closes.push(reason)
  return {
    async read() {
      link.onFrame = (bytes) => note(seen, bytes)
    },
    async sendNumbered(count, payloadBytes) {
      for (let i = 0; i < count; i++) await link.send(numberedFrame(i, payloadBytes))
    },
    waitForFrames: (count) =>
      until(
        () => seen.count >= count,
        () => `${count} frames, ${seen.count} came; closes: ${closes.join()}`,
      ),
    frames: async () => ({ ...seen }),
    waitForClose: () =>
      until(
        () => closes.length > 0,
        () => 'the close',
      ),
    closes: async () => [...closes],
    async close(reason) {
      link.close(reason)
    },
  }
}

function note(seen: { count: number; inOrder: boolean; intact: boolean }, bytes: Uint8Array): void {
  try {
    const frame = unpackFrame(bytes)
    seen.inOrder &&= frame.step === seen.count
    seen.intact &&= frame.payload.every((byte) => byte === (frame.step & 0xff))
  } catch {
    seen.intact = false
  }
  seen.count++
}

/** Carries one command to a far end elsewhere and brings its answer. */
export type CallFarEnd = (command: string, args: readonly unknown[]) => Promise<unknown>

/** A far end behind `call`; the other side answers with `answerFarEnd`. */
export function remoteFarEnd(call: CallFarEnd): FarEnd {
  return {
    read: async () => void (await call('read', [])),
    sendNumbered: async (count, payloadBytes) => void (await call('sendNumbered', [count, payloadBytes])),
    waitForFrames: async (count) => void (await call('waitForFrames', [count])),
    frames: async () => (await call('frames', [])) as FramesSeen,
    waitForClose: async () => void (await call('waitForClose', [])),
    closes: async () => (await call('closes', [])) as string[],
    close: async (reason) => void (await call('close', [reason])),
  }
}

/** Runs one command that `remoteFarEnd` sent. */
export async function answerFarEnd(far: FarEnd, command: string, args: readonly unknown[]): Promise<unknown> {
  const [first, second] = args
  switch (command) {
    case 'read':
      return far.read()
    case 'sendNumbered':
      return far.sendNumbered(Number(first), Number(second))
    case 'waitForFrames':
      return far.waitForFrames(Number(first))
    case 'frames':
      return far.frames()
    case 'waitForClose':
      return far.waitForClose()
    case 'closes':
      return far.closes()
    case 'close':
      return far.close(String(first))
    default:
      throw new Error(`internal: unknown far-end command ${command}`)
  }
}

async function until(condition: () => boolean, what: () => string): Promise<void> {
  const end = performance.now() + PATIENCE_MS
  while (!condition()) {
    if (performance.now() > end) throw new Error(`waited ${PATIENCE_MS} ms for ${what()}`)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}
