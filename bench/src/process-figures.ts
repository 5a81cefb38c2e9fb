// Memory and CPU time of another process, as Linux has them; undefined elsewhere.
import { readFileSync } from 'node:fs'

const KB = 1024
/** ms of one clock tick in /proc (USER_HZ is 100 on every architecture that Node runs on) */
const TICK_MS = 10
/** places of user and system time behind the name of the program (proc(5)) */
const [USER, SYSTEM] = [11, 12]

export interface ProcessFigures {
  /** bytes in memory now */
  readonly resident: number
  /** the most so far */
  readonly peak: number
  /** of all its threads so far */
  readonly cpuMs: number
}

export function figuresOf(pid: number | undefined): ProcessFigures | undefined {
  if (process.platform !== 'linux' || pid === undefined) return undefined
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  const bytes = (name: string): number => KB * Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1])
  const [, times = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
  const ticks = times.split(' ').map(Number)
  return {
    resident: bytes('VmRSS'),
    peak: bytes('VmHWM'),
    cpuMs: TICK_MS * ((ticks[USER] ?? 0) + (ticks[SYSTEM] ?? 0)),
  }
}
