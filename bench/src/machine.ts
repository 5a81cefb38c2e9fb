import { readFileSync } from 'node:fs'
// The machine that a figure belongs to, and whether it is quiet enough for figures.
import { cpus, loadavg, release, type } from 'node:os'

/** load average of the last minute, above which other work takes part in what is measured */
const QUIET = 0.5

export interface Machine {
  readonly cpu: string
  readonly cores: number
  readonly os: string
  readonly node: string
  /** load average of the minute before the start */
  readonly load: number
}

export function thisMachine(): Machine {
  const [first] = cpus()
  return {
    cpu: first?.model.trim() ?? 'unknown',
    cores: cpus().length,
    os: systemName(),
    node: process.version,
    load: Number((loadavg()[0] ?? 0).toFixed(2)),
  }
}

export function machineText({ cpu, cores, os, node, load }: Machine): string {
  return `${cpu}, ${cores} cores, ${os}, Node ${node}, load ${load}`
}

/** What to say when other work would be measured too. */
export function loadWarning({ load }: Machine): string | undefined {
  return load > QUIET
    ? `Warning: the load average is ${load}, above ${QUIET}: other work is being measured too, ` +
        'so these are no figures to publish.'
    : undefined
}

function systemName(): string {
  try {
    return /^PRETTY_NAME="?([^"\n]*)/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? `${type()} ${release()}`
  } catch {
    return `${type()} ${release()}`
  }
}
