import { openApi } from '@starling-grid/client/connection'
// `invite`: which volunteers a coordinator that was started with --participation invited lets in.
import type { InviteView } from '@starling-grid/protocol'
import { Command } from 'commander'
import { jobNamed } from '../api/job-named.ts'
import { type AnswerFlags, subcommand, tell } from '../api/subcommand.ts'
import { wholeNumber } from '../arguments.ts'
import { durationIn, momentText } from '../moments.ts'
import { table } from '../terminal/table.ts'

interface InviteFlags extends AnswerFlags {
  readonly uses?: number
  /** ms */
  readonly expires?: number
  readonly job?: string
}

export async function invite(argv: string[]): Promise<number> {
  const program = new Command('starling invite')
    .description(
      'Makes, lists and revokes invites of a coordinator that takes invited volunteers only ' +
        '(`starling start --participation invited`). A person who has the link may lend a machine.',
    )
    .exitOverride()
  addCreate(program)
  addList(program)
  addRevoke(program)
  await program.parseAsync(argv, { from: 'user' })
  return 0
}

function addCreate(program: Command): void {
  subcommand(program, 'create', 'Makes an invite, and prints its link this once.')
    .option('--uses <n>', 'volunteers that it lets in; one that comes back counts once (any number)', wholeNumber(1))
    .option('--expires <duration>', 'after which it lets in no newcomer, such as 90m, 12h or 30d', durationIn)
    .option('--job <id>', 'the only job that its volunteers are given')
    .action(async ({ uses, expires, job, ...flags }: InviteFlags) => {
      const api = await openApi(flags)
      const made = await api.createInvite({
        ...(uses === undefined ? {} : { uses }),
        ...(expires === undefined ? {} : { expiresAt: Date.now() + expires }),
        ...(job === undefined ? {} : { job: await jobNamed(api, job) }),
      })
      process.stderr.write(`invite ${made.view.id}; its link is shown this once\n`)
      tell(flags, made, [made.link])
    })
}

function addList(program: Command): void {
  subcommand(program, 'list', 'The invites, and how often each was used.').action(async (flags: AnswerFlags) => {
    const invites = await (await openApi(flags)).invites()
    tell(flags, { invites }, table([HEAD, ...invites.map(row)]))
  })
}

const HEAD = ['id', 'used', 'of', 'created (UTC)', 'expires', 'job']

function row({ id, used, uses, createdAt, expiresAt, job }: InviteView): string[] {
  return [
    id,
    String(used),
    String(uses ?? '-'),
    momentText(createdAt, ''),
    momentText(expiresAt, 'never'),
    job ?? 'all',
  ]
}

function addRevoke(program: Command): void {
  subcommand(program, 'revoke', 'Ends an invite at once; volunteers that came by it leave.')
    .argument('<id>', 'as `starling invite list` shows it')
    .action(async (id: string, flags: AnswerFlags) => {
      const revoked = await (await openApi(flags)).revokeInvite(id)
      tell(flags, { revoked }, [`${revoked} is revoked`])
    })
}
