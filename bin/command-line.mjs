// The commands, each a TypeScript file that is loaded into this process. A signal, a kill or an exit code then means
// that command and nothing in between. Plain JavaScript, because TypeScript is not readable yet.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

/** Exit code of a program that was called wrongly. */
const WRONG_USE = 2

/** Files that serve several commands take the name as first argument. */
const forUsers = (does) => ({ does, file: '../cli/src/main.ts', itself: true })
const forDevelopers = (does) => ({ does, file: '../e2e/src/main.ts', itself: true })

const COMMANDS = {
  start: forUsers('run the coordinator'),
  demo: forUsers('train a small network on this machine, with volunteers of its own'),
  train: forUsers('train the job of a file on this machine: train JOB'),
  plan: forUsers('forecast a training before anyone lends: plan JOB --with "30 laptops, home lines"'),
  job: forUsers('submit, follow and end jobs of a coordinator: job submit FILE | list | show ID | …'),
  predict: forUsers('answer with a trained model: predict MODEL IMAGE… | FILE.csv | ROW | FOLDER | TEXT'),
  convert: forUsers('write a model file as ONNX or as a PyTorch program: convert MODEL --format onnx'),
  invite: forUsers('let volunteers in by links: invite create, list, revoke'),
  token: forUsers('who else may use a coordinator: token create, list, revoke'),
  model: forUsers('import, list, show and delete published language models: model import NAME FOLDER'),
  dataset: forUsers('import, list, show and delete datasets: dataset import NAME PATH…'),
  doctor: forUsers('check what this machine offers, with a remedy for what it lacks'),
  volunteer: forUsers('give this machine to a coordinator: volunteer URL'),
  lend: forUsers('lend this machine to one volunteer of its rack; both are one member: lend'),
  launch: forUsers('run a program in several processes that are one group: launch -n 4 PROGRAM'),
  operator: forUsers('make TrainingJobs of a Kubernetes cluster jobs of a coordinator, and scale its volunteers'),
  ps: forUsers("hold one range of a coordinator's parameter server: ps URL --range I/N"),
  backup: forUsers('copy all jobs and their data into a folder: backup FOLDER'),
  restore: forUsers('put the jobs of a backup into a data folder or database: restore FOLDER'),
  migrate: forUsers('move the jobs of a data folder into a database: migrate --state URL'),
  golden: forUsers('compare the arithmetic with reference values: golden DIR'),
  explain: forUsers('show how a model would run here, kernel by kernel: explain MODEL'),
  parity: forUsers('show that 1, 2 and 4 volunteers train the same network'),
  chaos: forDevelopers('train while things break: chaos SCENARIO'),
  simulate: forDevelopers('train in simulated grids under random faults: simulate [--seeds N | --seed N]'),
  mutants: forDevelopers('break one line at a time and list what the tests do not notice: mutants [AREA]'),
  bench: { does: 'measure against other libraries: bench SUITE', file: '../bench/src/main.ts' },
  test: {
    does: 'run the tests, all of them, or those whose path contains a text: test [--all | TEXT…]',
    file: './run-tests.mjs',
  },
}

// Started by another command of ours, such as the demo: end when it ends, however it ends.
if (process.channel) {
  process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
  process.channel.unref()
}

function ownVersion() {
  return JSON.parse(readFileSync(new URL('../cli/package.json', import.meta.url), 'utf8')).version
}

export async function run([name, ...args]) {
  if (name === '--help' || name === '-h' || name === 'help') return console.log(help())
  if (name === '--version' || name === '-V') return console.log(ownVersion())
  const command = Object.hasOwn(COMMANDS, name ?? '') ? COMMANDS[name] : undefined
  if (command === undefined) {
    console.error(name === undefined ? help() : `Unknown command "${name}".\n\n${help()}`)
    process.exitCode = WRONG_USE
    return
  }
  const file = new URL(command.file, import.meta.url)
  // As if it had been started by itself.
  process.argv = [process.execPath, fileURLToPath(file), ...(command.itself ? [name] : []), ...args]
  if (!isInstalled()) {
    console.error('The dependencies are not installed. Run `npm ci` in the folder of the repository first.')
    process.exitCode = 1
    return
  }
  const { compiled } = await import('./compile.mjs')
  await import(file.pathname.endsWith('.ts') ? await compiled(file) : file.href)
}

/** The compiler is one of the dependencies, and every command needs it. */
function isInstalled() {
  try {
    import.meta.resolve('esbuild')
    return true
  } catch {
    return false
  }
}

function help() {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length))
  const rows = Object.entries(COMMANDS).map(([name, { does }]) => `  ${name.padEnd(width)}  ${does}`)
  return (
    `Usage: starling COMMAND [options]\n\n${rows.join('\n')}\n\n\`starling COMMAND --help\` lists its options. ` +
    'With npm: npm run COMMAND -- [options]\n`starling --version` says which this is.'
  )
}
