// Rings, ballots and handovers in which members say what state they hold. Used by run-agreement and run-derived-state.
import assert from 'node:assert/strict'
import { memberId, type VersionRef } from '@starling-grid/protocol'
import { Desk, type DeskOptions, hashOf } from './run-desk.ts'

export function ringOf(names: readonly string[], options: DeskOptions = {}): Desk {
  const desk = new Desk({
    minVolunteers: names.length,
    blocks: 300,
    batchBlocks: 1,
    epochs: 3,
    ...options,
    timing: { checkpointSteps: 1, ...options.timing },
  })
  desk.join(...names)
  desk.run(...names)
  return desk
}

export function upload(desk: Desk, name: string, version: VersionRef, bytes = 'right'): void {
  desk.feed({ type: 'uploaded', member: memberId(name), version, blob: hashOf(bytes), bytes: 1 })
}

export function report(desk: Desk, name: string, version: VersionRef, bytes = 'right'): void {
  desk.say(name, { type: 'version-digest', version, digest: hashOf(bytes) })
}

/** Steps until a checkpoint is due at the committed version: who is to upload it, and the others. */
export function atCheckpoint(desk: Desk): {
  readonly version: VersionRef
  readonly uploader: string
  readonly others: readonly string[]
} {
  for (
    let i = 0;
    i < 50 && (desk.state.checkpointing.asked?.v ?? Number.POSITIVE_INFINITY) > desk.state.chain.head.v;
    i++
  )
    desk.step(desk.state.chain.head.v + 1)
  const { uploader, v } =
    desk.state.checkpointing.asked ?? assert.fail(`no checkpoint is asked for in phase ${desk.phase}`)
  assert.equal(v, desk.state.chain.head.v)
  return { version: desk.state.chain.head, uploader, others: desk.members.filter((id) => id !== uploader) }
}

export const isOut = (desk: Desk, name: string): boolean =>
  (desk.state.members.get(memberId(name))?.excludedUntil ?? 0) > desk.now

export function formed(
  confirming: Readonly<Record<string, string>>,
  options: { readonly steps?: number; readonly witnessed?: boolean; readonly derives?: string } = {},
): Desk {
  const names = Object.keys(confirming)
  const desk = ringOf(names, { timing: { checkpointSteps: 1e9, checkpointMs: 1e9 } })
  desk.derives = options.derives ?? null
  for (let v = 1; v <= (options.steps ?? 3); v++) {
    desk.step(v)
    if (v === 2 && options.witnessed !== false) desk.checkpoint()
  }
  desk.say(names[0] ?? '', {
    type: 'abort',
    step: 4,
    blamed: null,
    why: 'stalled',
    links: [],
    code: 'reduce-timeout',
    message: 'test',
  })
  for (const name of names) desk.answer(name, [])
  for (const [name, bytes] of Object.entries(confirming)) desk.confirm(name, bytes)
  return desk
}

export function handingOver(claims: Readonly<Record<string, readonly never[] | 'ahead' | undefined>>): Desk {
  const names = Object.keys(claims)
  const desk = ringOf(names, { mode: 'auto', timing: { abortsBeforeFallback: 1, checkpointSteps: 1e9 } })
  desk.step(1)
  const ahead = desk.record(2)
  desk.say(names[0] ?? '', {
    type: 'abort',
    step: 2,
    blamed: null,
    why: 'own',
    links: [],
    code: 'link-lost',
    message: 'test',
  })
  for (const [name, claim] of Object.entries(claims)) desk.answer(name, claim === 'ahead' ? [ahead] : claim)
  return desk
}
