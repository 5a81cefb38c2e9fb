// What all subcommands share that ask a coordinator: how they find it, and how they print what it answers.
import type { Command } from 'commander'
import { type ConnectionFlags, withConnection } from './connection.ts'

export interface AnswerFlags extends ConnectionFlags {
  readonly json?: boolean
}

export function subcommand(program: Command, usage: string, text: string): Command {
  return withConnection(program.command(usage).description(text)).option(
    '--json',
    'print one JSON value on the last line of stdout',
  )
}

/** The value with --json, lines for people otherwise. */
export function tell({ json }: Pick<AnswerFlags, 'json'>, value: object, lines: readonly string[]): void {
  const text = json === true ? [JSON.stringify(value)] : lines
  for (const line of text) process.stdout.write(`${line}\n`)
}
