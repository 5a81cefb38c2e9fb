// The parameter server of one run, between decisions and what it computes: effects in, inputs back. Decides nothing,
// and independent of members.
import type { PushedGradient } from '@starling-grid/model'
import { describeError } from '@starling-grid/protocol'
import type { BlobStore } from '../blobs/blob-store.ts'
import type { ParameterServer } from '../parameter-server/parameter-server.ts'
import type { Checkpoint, Effect, RunInput } from '../run/state.ts'
import { isDamage, type Versions } from './versions.ts'

export interface ServerWorkParts {
  readonly server: ParameterServer
  readonly versions: Versions
  readonly blobs: BlobStore
  feed(input: RunInput): void
  /** for the run's history */
  note(text: string): void
  /** for the history and for the log of the process */
  onTrouble(text: string): void
}

export type ServerEffect = Extract<Effect, { type: `server-${string}` }>

export class ServerWork {
  readonly #parts: ServerWorkParts

  constructor(parts: ServerWorkParts) {
    this.#parts = parts
  }

  /** `gradient`: of the push that the decision was about. @throws GridError when a checkpoint cannot be read now */
  carryOut(effect: ServerEffect, gradient: PushedGradient | undefined): Promise<void> {
    switch (effect.type) {
      case 'server-load':
        return this.#load(effect.checkpoint)
      case 'server-add':
        return this.#onServer((server) => server.add({ gradient: required(gradient), ...effect }))
      case 'server-close':
        return this.#onServer(async (server) => {
          const norm = await server.close(effect.version, effect.record.targets)
          this.#parts.feed({ type: 'server-closed', version: effect.version, norm })
        })
      case 'server-checkpoint':
        return this.#onServer(() => this.#write())
      case 'server-unload':
        return this.#parts.server.unload()
    }
  }

  async #load(checkpoint: Checkpoint): Promise<void> {
    const { versions, note } = this.#parts
    const state = await versions.load(checkpoint).catch((error: unknown) => this.#damaged(checkpoint, error))
    if (state === undefined) return
    const remembered = await versions.remembered(checkpoint).catch(unlessDamaged)
    await this.#onServer(async (server) => {
      await server.load(state, remembered)
      note(`the parameter server computes in ${server.place}`)
    }, true)
  }

  /**
   * Reading it again leads nowhere: the decisions name an older one. @throws what is no damage: a disk that fails may
   * work again
   */
  #damaged({ version }: Checkpoint, error: unknown): undefined {
    if (!isDamage(error)) throw error
    this.#parts.feed({ type: 'checkpoint-damaged', version, problem: error.message, neededBy: 'server' })
  }

  /** A4: a server that fails is gone whole, and what was still meant for it with it, until it is loaded again. */
  async #onServer(deed: (server: ParameterServer) => Promise<unknown>, always = false): Promise<void> {
    const { server, feed } = this.#parts
    if (server.head === undefined && !always) return
    try {
      await deed(server)
    } catch (error) {
      await server.unload()
      feed({ type: 'server-lost', reason: describeError(error) })
    }
  }

  /** Encoded now, written while other effects go on; a disk that fails is asked again by the decisions. */
  async #write(): Promise<void> {
    const { server, blobs, feed, onTrouble } = this.#parts
    const { version, bytes, remembered } = await server.encode()
    Promise.all([blobs.put(bytes), blobs.put(remembered)])
      .then(([blob, beside]) =>
        feed({ type: 'server-checkpoint', version, blob, bytes: bytes.byteLength, remembered: beside }),
      )
      .catch((error: unknown) =>
        onTrouble(`the checkpoint of version ${version.v} was not written: ${describeError(error)}`),
      )
  }
}

function required(gradient: PushedGradient | undefined): PushedGradient {
  if (gradient === undefined) throw new Error('internal: a push without its gradient')
  return gradient
}

/** Without what it remembered of pushes a server begins anew to learn their norms. @throws what is no damage */
function unlessDamaged(error: unknown): undefined {
  if (!isDamage(error)) throw error
}
