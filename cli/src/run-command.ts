import { describeError, isGridError, plainText } from '@starling-grid/protocol'
// Runs one of several commands: the one place where a thrown error becomes a message and an exit code.
import { CommanderError } from 'commander'

export type RunCommand = (argv: string[]) => Promise<number>

const FAILURE = 1
const WRONG_USE = 2

/** `argv` begins with the command's name. Answers with the exit code. */
export async function runCommand(
  commands: Readonly<Record<string, () => Promise<RunCommand>>>,
  argv: readonly string[],
): Promise<number> {
  const verbose = argv.includes('--verbose')
  const [name = '', ...args] = argv.filter((argument) => argument !== '--verbose')
  const load = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (load === undefined) {
    console.error(`"${name}" is no command; expected one of ${Object.keys(commands).join(', ')}.`)
    return WRONG_USE
  }
  try {
    const run = await load()
    return await run(args)
  } catch (error) {
    return report(error, verbose)
  } finally {
    await Promise.all([process.stdout, process.stderr].map(written))
  }
}

/** A process that exits drops what a pipe has not taken yet. */
function written(stream: NodeJS.WriteStream): Promise<void> {
  return new Promise((resolve) => void stream.write('', () => resolve()))
}

/** One to three lines, the last that are printed; the stack only when asked for. */
function report(error: unknown, verbose: boolean): number {
  // Commander has said what is wrong, or shown the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : WRONG_USE
  // What a coordinator said may be part of it: nothing of that moves the cursor or renames the window.
  console.error(describeError(error).split('\n').map(plainText).join('\n'))
  if (verbose && error instanceof Error) console.error(error.stack)
  else if (!isGridError(error))
    console.error('This is a defect. Run the command again with --verbose for details to report.')
  return isGridError(error) && error.code === 'usage' ? WRONG_USE : FAILURE
}
