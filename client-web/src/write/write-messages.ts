// Messages between window and the Worker that writes text with the model of a job.
import type { ChatMessage } from '@starling-grid/model/chat'
import type { WritingOptions } from '@starling-grid/model/text'
import type { AdapterDescription, JobId } from '@starling-grid/protocol'
import type { VisitorLimits } from '../contribute/visitor-limits.ts'
import type { Failure, TabExecutor } from '../worker-messages.ts'

export type ToWriter =
  /** once, and again for another version of the same job */
  | {
      readonly type: 'open'
      readonly job: JobId
      /** of the owner; undefined: the job is public */
      readonly token: string | undefined
      /** step of a kept checkpoint; undefined: the newest */
      readonly version: number | undefined
      readonly limits: Pick<VisitorLimits, 'memoryBytes' | 'diskBytes'>
      /** what computes; undefined: what is found and measured */
      readonly executor: TabExecutor | undefined
    }
  | { readonly type: 'write'; readonly asked: AskedText; readonly options: WritingOptions }
  | { readonly type: 'stop' }

/** The beginning of a text, or a conversation whose last message is the visitor's. */
export type AskedText = { readonly prompt: string } | { readonly messages: readonly ChatMessage[] }

export type FromWriter =
  /** bytes that are here, of all; total 0: not known */
  | {
      readonly type: 'loading'
      readonly what: 'model' | 'base' | 'device'
      readonly done: number
      readonly total: number
    }
  | { readonly type: 'opened'; readonly version: number; readonly adapter: AdapterDescription }
  /** perSecond: tokens, since the first; 0: there is one only */
  | { readonly type: 'piece'; readonly text: string; readonly tokens: number; readonly perSecond: number }
  | { readonly type: 'written'; readonly why: WhyEnded }
  /** `isOpen`: the version before still writes */
  | { readonly type: 'failed'; readonly failure: Failure; readonly isOpen: boolean }

/** The model ended its text, all tokens that were asked for are there, or the visitor stopped it. */
export type WhyEnded = 'model' | 'length' | 'stopped'
