// Prints the help of commands and of their subcommands as one JSON value, name → texts. One process for all of them: a
// process for each would cost a third of a second of a core each.
import { COMMANDS } from '../src/commands.ts'
import { runCommand } from '../src/run-command.ts'

const write = process.stdout.write.bind(process.stdout)

async function help(args: readonly string[]): Promise<string> {
  let text = ''
  process.stdout.write = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    text += String(chunk)
    const [done] = rest.filter((one) => typeof one === 'function')
    done?.()
    return true
  }
  await runCommand(COMMANDS, [...args, '--help'])
  return text
}

/** With that of its subcommands. */
async function helpOfCommand(name: string): Promise<readonly string[]> {
  const texts = [await help([name])]
  const [, subcommands = ''] = (texts[0] ?? '').split('Commands:')
  for (const [, subcommand = ''] of subcommands.matchAll(/^ {2}([a-z-]+)/gm))
    if (subcommand !== 'help') texts.push(await help([name, subcommand]))
  return texts
}

const found: Record<string, readonly string[]> = {}
for (const name of Object.keys(COMMANDS)) found[name] = await helpOfCommand(name)
write(JSON.stringify(found), () => process.exit(0))
