// What happened to a run, line by line.
import { plainText, type RunEvent } from '@starling-grid/protocol'

export function eventLine({ at, kind, text }: RunEvent): string {
  return `${new Date(at).toISOString()}  ${kind.padEnd('generation'.length)}  ${plainText(text)}`
}
