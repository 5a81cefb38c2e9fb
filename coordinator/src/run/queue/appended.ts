// Data that joins the dataset of a running job. Its shards come behind those that are there, so that every block keeps
// its number; its blocks are of the epochs from the next one on (R13). Pure.
import { blockRanges, MAX_BLOCKS, type MemberId, type ShardRef } from '@starling-grid/protocol'
import type { AppendedShards } from '../appended-shards.ts'
import type { Recording } from '../recorded.ts'
import type { RunInput } from '../state.ts'
import type { Aspect, Transition } from '../transition.ts'
import { blocksIn, currentEpoch } from './scheduler.ts'

export const appended = {
  on: {
    'dataset-appended': onAppended,
    'member-joined': (transition, { member: { id } }) => {
      for (const one of transition.state.appended) tell(transition, [id], one)
    },
  },
} satisfies Aspect

function onAppended(transition: Transition, { before, shards }: Extract<RunInput, { type: 'dataset-appended' }>): void {
  const { state } = transition
  if (state.finished !== undefined || shards.length === 0) return
  const epoch = currentEpoch(state) + 1
  if (epoch >= state.config.epochs)
    return transition.note(
      'run',
      'data was appended to the dataset, too late for this job: its last epoch is under way',
    )
  const more = blockRanges(shards, state.config.blockSamples).length
  const blocks = blocksIn(state, epoch) + more
  if (blocks > MAX_BLOCKS)
    return transition.note(
      'run',
      `data was appended that this job does not take: an epoch has ${MAX_BLOCKS} blocks at most`,
    )
  const joined: AppendedShards = { epoch, blocks, before, shards }
  transition.journal({ type: 'appended', ...joined })
  transition.effect({ type: 'append-shards', shards })
  tell(transition, [...state.members.keys()], joined)
  transition.note(
    'run',
    `${samplesOf(shards)} samples were appended to the dataset: they are trained from epoch ${epoch + 1} on`,
  )
}

/** Those that prepared with the longer list already ignore it. */
function tell(transition: Transition, members: readonly MemberId[], { before, shards }: AppendedShards): void {
  for (const member of members) transition.send(member, { type: 'appended', before, shards: [...shards] })
}

function samplesOf(shards: readonly ShardRef[]): number {
  return shards.reduce((sum, { samples }) => sum + samples, 0)
}

/** Of all shards that were appended so far, in their order. */
export function appendedShards({ appended: all }: Pick<Recording, 'appended'>): ShardRef[] {
  return all.flatMap(({ shards }) => shards)
}
