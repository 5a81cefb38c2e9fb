// Options that say which coordinator a command talks to, and as who.
import { DEFAULT_PORT } from '@starling-grid/protocol'
import { type Command, Option } from 'commander'

export interface ConnectionFlags {
  readonly url?: string
  readonly tokenFile?: string
  readonly dataDir: string
  readonly fingerprint?: string
}

/** Adds the options that say which coordinator, and as who. */
export function withConnection(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--url <url>',
        `address of the coordinator (the one of --data-dir, or http://localhost:${DEFAULT_PORT})`,
      ).env('STARLING_URL'),
    )
    .option(
      '--token-file <file>',
      'file of mode 600 with the owner token; STARLING_TOKEN, or the file in --data-dir, otherwise',
    )
    .option('--data-dir <folder>', 'of a coordinator on this machine', 'starling-data')
    .option('--fingerprint <sha256>', 'of the certificate of a coordinator with --https, as it printed at its start')
}
