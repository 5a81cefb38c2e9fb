// Memory of another process, as Linux has it; undefined elsewhere.
import { readFileSync } from 'node:fs'

const KB = 1024

export interface ProcessMemory {
  /** bytes in memory now */
  readonly resident: number
  /** the most so far */
  readonly peak: number
}

export function memoryOf(pid: number | undefined): ProcessMemory | undefined {
  if (process.platform !== 'linux' || pid === undefined) return undefined
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const of = (name: string): number => KB * Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1])
  return { resident: of('VmRSS'), peak: of('VmHWM') }
}
