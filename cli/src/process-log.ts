// The log of a process that runs for long: lines for people, or one JSON object a line for programs that collect logs.
// Both go to stderr; stdout is for results.
import type { Log, LogEntry, LogLevel } from '@starling-grid/coordinator'
import { plainText } from '@starling-grid/protocol'
import { Option } from 'commander'
import { pino } from 'pino'

const LOG_LEVELS: readonly LogLevel[] = ['debug', 'info', 'warn', 'error']
export const LOG_FORMATS = ['text', 'json'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]

/** People see what is wrong, and the dashboard the rest; a program that collects logs gets all events. */
const DEFAULT_LEVEL: Readonly<Record<LogFormat, LogLevel>> = { text: 'warn', json: 'info' }

export interface LogFlags {
  readonly logFormat: LogFormat
  readonly logLevel?: LogLevel
}

/** What is written with `write`, a line at a time; process.stderr is one. */
export interface LogSink {
  write(text: string): unknown
}

export function logOptions(): readonly Option[] {
  return [
    new Option('--log-format <format>', 'lines for people, or one JSON object a line')
      .choices([...LOG_FORMATS])
      .default('text' satisfies LogFormat),
    new Option('--log-level <level>', 'the least that is logged (warn; info with --log-format json)').choices([
      ...LOG_LEVELS,
    ]),
  ]
}

export function processLog({ logFormat, logLevel }: LogFlags, sink: LogSink = process.stderr): Log {
  const level = logLevel ?? DEFAULT_LEVEL[logFormat]
  const destination = { write: (line: string) => void sink.write(logFormat === 'json' ? line : textLine(line)) }
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      messageKey: 'message',
    },
    destination,
  )
  return ({ level: at, message, about, ...named }) => logger[at]({ ...named, ...about }, message)
}

/** `2026-11-23T10:00:00.000Z warn  digits-1a2b3c  marigold left` */
function textLine(json: string): string {
  const { time, level, job, message } = JSON.parse(json) as LogEntry & { readonly time: string }
  const named = job === undefined ? '' : `${job}  `
  return `${time} ${level.padEnd(5)} ${named}${message.split('\n').map(plainText).join('\n')}\n`
}
