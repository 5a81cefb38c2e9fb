// docs/SETTINGS.md, made from the options of the commands that read settings. `npm run docs` writes it;
// settings.test.ts fails while it differs.
import { readFileSync, writeFileSync } from 'node:fs'
import type { Command } from 'commander'
import { lendCommand } from '../src/commands/lend.ts'
import { operatorCommand } from '../src/commands/operator.ts'
import { volunteerCommand } from '../src/commands/volunteer.ts'
import { settingRows, type SettingRow } from '../src/settings.ts'
import { startCommand } from '../src/start-options.ts'
import { writeCrd } from './training-job-crd.ts'

const PAGE = new URL('../../docs/SETTINGS.md', import.meta.url)

const COMMANDS: readonly (() => Command)[] = [startCommand, volunteerCommand, lendCommand, operatorCommand]

const HEAD = `# Settings

Each setting of these commands may stand in three places: as an option, as a variable of the environment, and in the
YAML or JSON file of \`--config FILE\`. The option counts before the variable, the variable before the file, and the
file before the default. \`--print-config\` prints what is in force and where each value comes from, and ends. A value
of several words is a list in the file, and has commas in a variable. A setting that is on or off is \`true\` or
\`false\` there.
`

export const settingsPage = (): string => readFileSync(PAGE, 'utf8')

export function renewedSettings(): string {
  return [HEAD, ...COMMANDS.map((command) => sectionOf(command()))].join('\n')
}

function sectionOf(command: Command): string {
  const rows = settingRows(command).map(rowOf)
  return [
    `## ${command.name()}`,
    '',
    '| option | variable | in the file | meaning | default |',
    '|---|---|---|---|---|',
    ...rows,
    '',
  ].join('\n')
}

function rowOf({ flags, variable, key, meaning, choices, default: otherwise }: SettingRow): string {
  const words = choices === undefined ? '' : ` (one of ${choices.join(', ')})`
  const cells = [`\`${flags}\``, `\`${variable}\``, `\`${key}\``, meaning + words, defaultText(key, otherwise)]
  return `| ${cells.map((cell) => cell.replaceAll('|', String.raw`\|`)).join(' | ')} |`
}

function defaultText(key: string, value: unknown): string {
  if (key === 'name') return 'made by chance'
  return value === undefined || (Array.isArray(value) && value.length === 0) ? '' : `\`${String(value)}\``
}

export function writeSettingsDocs(): void {
  writeFileSync(PAGE, renewedSettings())
}

// The CRD is made of what the first part of `npm run docs` writes.
if (process.argv[1]?.endsWith('settings-page.ts')) {
  writeSettingsDocs()
  writeCrd()
}
