// `token`: who else may use a coordinator as an owner, and how far.
import { writeFile } from 'node:fs/promises'
import { openApi } from '@starling-grid/client/connection'
import { describeError, GridError, plainText, type TokenScope, SCOPES, type TokenView } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { type AnswerFlags, subcommand, tell } from '../api/subcommand.ts'
import { durationIn, momentText } from '../moments.ts'
import { table } from '../terminal/table.ts'

interface TokenFlags extends AnswerFlags {
  readonly scope: readonly TokenScope[]
  readonly name?: string
  /** ms */
  readonly expires?: number
  readonly out?: string
}

/** What this user alone may read. */
const OWN_FILE = 0o600

export async function token(argv: string[]): Promise<number> {
  const program = new Command('starling token')
    .description(
      'Makes, lists and revokes tokens of a coordinator. A token sees and controls the jobs that it submitted; one ' +
        'of scope admin sees and controls all. The token that the coordinator made at its first start is an admin.',
    )
    .exitOverride()
  addCreate(program)
  addList(program)
  addRevoke(program)
  await program.parseAsync(argv, { from: 'user' })
  return 0
}

function addCreate(program: Command): void {
  subcommand(program, 'create', 'Makes a token, and prints it this once.')
    .addOption(new Option('--scope <scope...>', 'what it allows').choices(SCOPES).default(['jobs:write']))
    .option('--name <name>', 'what it is for')
    .option('--expires <duration>', 'after which it is good for nothing, such as 90m, 12h or 30d', durationIn)
    .option('--out <file>', 'write it into a new file of mode 600 instead')
    .action(async ({ scope, name, expires, out, ...flags }: TokenFlags) => {
      const api = await openApi(flags)
      const expiry = expires === undefined ? {} : { expiresAt: Date.now() + expires }
      const made = await api.createToken({ scopes: [...scope], ...expiry, ...(name === undefined ? {} : { name }) })
      if (out !== undefined) await writeSecret(out, made.token)
      process.stderr.write(
        `${described(made.view)}; ${out === undefined ? 'it is shown this once' : `it is in ${out}`}\n`,
      )
      if (out === undefined) tell(flags, made, [made.token])
      else tell(flags, { view: made.view, file: out }, [])
    })
}

/** @throws GridError 'folder-unwritable' also for a file that is there already */
async function writeSecret(file: string, secret: string): Promise<void> {
  await writeFile(file, `${secret}\n`, { mode: OWN_FILE, flag: 'wx' }).catch((cause: unknown) => {
    throw new GridError(
      'folder-unwritable',
      `expected a new file for the token, got ${file} (${describeError(cause)}); revoke this token and make another`,
      { cause },
    )
  })
}

function described({ id, scopes, expiresAt }: TokenView): string {
  const until = expiresAt === null ? 'it is revoked' : `${momentText(expiresAt, '')} UTC`
  return `token ${id} of scope ${scopes.join(', ')}, until ${until}`
}

function addList(program: Command): void {
  subcommand(program, 'list', 'The tokens beside the first one.').action(async (flags: AnswerFlags) => {
    const tokens = await (await openApi(flags)).tokens()
    tell(flags, { tokens }, table([HEAD, ...tokens.map(row)]))
  })
}

const HEAD = ['id', 'scope', 'created (UTC)', 'expires', 'last used', 'name']

function row({ id, scopes, createdAt, expiresAt, lastUsedAt, name }: TokenView): string[] {
  const times = [momentText(createdAt, ''), momentText(expiresAt, 'never'), momentText(lastUsedAt, 'never')]
  return [id, scopes.join(','), ...times, plainText(name)]
}

function addRevoke(program: Command): void {
  subcommand(program, 'revoke', 'Ends a token at once, and what its holder has open.')
    .argument('<id>', 'as `starling token list` shows it')
    .action(async (id: string, flags: AnswerFlags) => {
      const revoked = await (await openApi(flags)).revokeToken(id)
      tell(flags, { revoked }, [`${revoked} is revoked`])
    })
}
