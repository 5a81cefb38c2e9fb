// The settings of a command that runs for long: options of its command line, variables of the environment, and a file.
// A flag counts before the environment, that before the file, and all before the default. Each setting is an option of
// the command: it has no second list of names, texts or checks.
import { stat } from 'node:fs/promises'
import { readYamlFile, type YamlFile } from '@starling-grid/client/yaml-file'
import { GridError, isGridError, type Mistake, nearest, plainText, shown } from '@starling-grid/protocol'
import { type Command, InvalidArgumentError, Option } from 'commander'

const PREFIX = 'STARLING_'
/** About the call itself: no settings. */
const OF_THE_CALL = new Set(['config', 'printConfig', 'help', 'json', 'takeOver', 'once'])
/** What others may do with a file of secrets: nothing. */
const OTHERS = 0o077

export interface SettingsFlags {
  readonly config?: string
  readonly printConfig?: boolean
}

export interface SettingsRules {
  /** keys of options whose values are shown to no one */
  readonly secrets: readonly string[]
}

/** Where a value comes from, for people. */
type Origins = Map<string, string>

export function withSettings(command: Command): Command {
  return command
    .addOption(
      new Option(
        '--config <file>',
        'YAML file of settings: names of options in camel case, such as dataDir. The environment counts before it ' +
          `(${PREFIX}DATA_DIR), and options before both`,
      ).env(`${PREFIX}CONFIG`),
    )
    .option('--print-config', 'print each setting with where it comes from, secrets hidden, and end')
}

export interface Settings {
  /** as YAML that --config reads; undefined unless --print-config asked for it */
  readonly printed: string | undefined
  /** about the environment, for people */
  readonly warnings: readonly string[]
}

/**
 * Completes the options of a command that was parsed: what its command line leaves out, the environment or the file of
 * --config says. @throws GridError 'usage' with a line for each mistake
 */
export async function completeSettings(
  command: Command,
  rules: SettingsRules,
  env: NodeJS.ProcessEnv = process.env,
): Promise<Settings> {
  const origins: Origins = new Map()
  const { config, printConfig = false } = command.opts<SettingsFlags>()
  const mistakes = fromEnvironment(command, env, origins)
  if (mistakes.length > 0) throw new GridError('usage', mistakes.join('\n'))
  if (config !== undefined) await fromFile(command, config, { rules, origins })
  requireNoConflict(command, origins)
  return {
    printed: printConfig ? printedSettings(command, rules, origins) : undefined,
    warnings: strangers(command, env),
  }
}

function settingsIn({ options }: Command): readonly Option[] {
  return options.filter((option) => !OF_THE_CALL.has(option.attributeName()))
}

/** `--data-dir` → STARLING_DATA_DIR */
function variableOf(option: Option): string {
  return option.envVar ?? PREFIX + (option.long ?? '').slice(2).replaceAll('-', '_').toUpperCase()
}

/** Nothing of higher rank says it. */
function isOpen(command: Command, option: Option): boolean {
  const source = command.getOptionValueSource(option.attributeName())
  return source === undefined || source === 'default'
}

/** Where a setting may stand, and what it means: `--help` and docs/SETTINGS.md are made of the same options. */
export interface SettingRow {
  /** `--data-dir <folder>` */
  readonly flags: string
  readonly variable: string
  /** in the file of --config */
  readonly key: string
  readonly meaning: string
  /** words of which one is meant; undefined: another value */
  readonly choices: readonly string[] | undefined
  readonly default: unknown
}

export function settingRows(command: Command): SettingRow[] {
  return settingsIn(command)
    .filter(({ hidden }) => !hidden)
    .map((option) => ({
      flags: option.flags,
      variable: variableOf(option),
      key: option.attributeName(),
      meaning: option.description,
      choices: option.argChoices,
      default: option.defaultValueDescription ?? option.defaultValue,
    }))
}

function fromEnvironment(command: Command, env: NodeJS.ProcessEnv, origins: Origins): string[] {
  return settingsIn(command).flatMap((option) => {
    const name = variableOf(option)
    const text = env[name]
    if (command.getOptionValueSource(option.attributeName()) === 'env') origins.set(option.attributeName(), name)
    if (text === undefined || text === '' || !isOpen(command, option)) return []
    const read = readValue(option, textValue(option, text))
    if ('expected' in read) return [`${name}: expected ${read.expected}, got ${shown(text)}; correct the variable`]
    command.setOptionValueWithSource(option.attributeName(), read.value, 'env')
    origins.set(option.attributeName(), name)
    return []
  })
}

interface FileContext {
  readonly rules: SettingsRules
  readonly origins: Origins
}

async function fromFile(command: Command, file: string, { rules, origins }: FileContext): Promise<void> {
  const read = await readYamlFile(file, { holds: 'settings', code: 'usage' })
  const options = new Map(settingsIn(command).map((option) => [option.attributeName(), option]))
  const fields = fieldsIn(read)
  const mistakes = fields.flatMap(([key, value]) => {
    const option = options.get(key)
    return option === undefined ? [unknownSetting(key, [...options.keys()])] : mistakeIn(option, key, value)
  })
  if (mistakes.length > 0) throw new GridError('usage', mistakes.map(read.located).join('\n'))
  const secret = fields.find(([key, value]) => rules.secrets.includes(key) && isSecret(key, value))
  if (secret !== undefined) await requireSecret(file, secret[0])
  for (const [key, value] of fields) {
    const option = options.get(key)
    if (option === undefined || !isOpen(command, option)) continue
    const result = readValue(option, value)
    if ('value' in result) command.setOptionValueWithSource(key, result.value, 'config')
    origins.set(key, `${file}:${read.lineOf([key])}`)
  }
}

/** @throws GridError 'usage' */
function fieldsIn({ value, located }: YamlFile): readonly (readonly [string, unknown])[] {
  if (value === null) return []
  if (typeof value === 'object' && !Array.isArray(value)) return Object.entries(value)
  throw new GridError(
    'usage',
    located({ path: [], expected: 'settings by name', found: shown(value), hint: 'write lines such as `port: 8790`' }),
  )
}

function unknownSetting(key: string, names: readonly string[]): Mistake {
  const meant = nearest(key, names)
  const hint = meant === undefined ? '`--help` names them all' : `did you mean \`${meant}\`?`
  return { path: [key], expected: 'a known setting', found: shown(key), hint }
}

function mistakeIn(option: Option, key: string, value: unknown): Mistake[] {
  const read = readValue(option, value)
  if ('value' in read) return []
  const meant = typeof value === 'string' ? nearest(value, option.argChoices ?? []) : undefined
  const hint = meant === undefined ? {} : { hint: `did you mean \`${meant}\`?` }
  return [{ path: [key], expected: read.expected, found: shown(value), ...hint }]
}

type ReadValue = { readonly value: unknown } | { readonly expected: string }

/** As the command line would read it. */
function readValue(option: Option, value: unknown): ReadValue {
  if (option.isBoolean()) return typeof value === 'boolean' ? { value } : { expected: 'true or false' }
  if (option.variadic) return readList(option, value)
  if (option.optional && typeof value === 'boolean') return { value: value ? option.presetArg : undefined }
  return readOne(option, value)
}

function readList(option: Option, value: unknown): ReadValue {
  const list = Array.isArray(value) ? value : [value]
  const read = list.map((one) => readOne(option, one))
  const wrong = read.find((one) => 'expected' in one)
  return wrong ?? { value: read.flatMap((one) => ('value' in one ? [one.value] : [])) }
}

function readOne(option: Option, value: unknown): ReadValue {
  if (typeof value !== 'string' && typeof value !== 'number') return { expected: 'a text or a number' }
  const text = String(value)
  const { argChoices, parseArg } = option
  if (argChoices !== undefined && !option.variadic)
    return argChoices.includes(text) ? { value: text } : { expected: `one of ${argChoices.join(', ')}` }
  if (parseArg === undefined) return { value: text }
  try {
    return { value: parseArg(text, undefined) }
  } catch (error) {
    if (!(error instanceof InvalidArgumentError) && !isGridError(error)) throw error
    return { expected: error.message.replace(/^expected /, '').replace(/, got .*$/s, '') }
  }
}

/** What a variable of the environment says of an option that is on or off, or of a list. */
function textValue(option: Option, text: string): unknown {
  const word = text.toLowerCase()
  const yes = word === 'true' || word === '1'
  if (option.isBoolean() || (option.optional && (word === 'true' || word === 'false')))
    return yes || word === 'false' || word === '0' ? yes : text
  return option.variadic ? text.split(/[\s,]+/).filter((one) => one !== '') : text
}

/** An address counts as a secret when it holds a password, or more than a place: the code of an invite. */
function isSecret(key: string, value: unknown): boolean {
  if (typeof value !== 'string') return false
  if (!URL.canParse(value) || /secret|token/i.test(key)) return true
  const { password, hash, search } = new URL(value)
  return password !== '' || hash !== '' || search !== ''
}

/** @throws GridError 'usage' */
async function requireSecret(file: string, key: string): Promise<void> {
  const { mode } = await stat(file)
  if (process.platform !== 'win32' && (mode & OTHERS) !== 0)
    throw new GridError(
      'usage',
      `expected ${file} to be readable by one user alone, because it has \`${key}\`, ` +
        `got mode ${(mode & 0o777).toString(8)}; run \`chmod 600 ${file}\`, or move the secret to the environment`,
    )
}

/** @throws GridError 'usage': two settings that exclude each other, wherever they stand */
function requireNoConflict(command: Command, origins: Origins): void {
  for (const option of settingsIn(command)) {
    const key = option.attributeName()
    if (isOpen(command, option)) continue
    const other = conflictsOf(option).find((name) => (command.getOptionValueSource(name) ?? 'default') !== 'default')
    if (other === undefined) continue
    const place = (name: string): string => `\`${name}\` (${origins.get(name) ?? 'command line'})`
    throw new GridError('usage', `expected one of ${place(key)} and ${place(other)}, got both; leave one out`)
  }
}

/** Commander keeps them without a type. */
function conflictsOf(option: Option): readonly string[] {
  return (option as { readonly conflictsWith?: readonly string[] }).conflictsWith ?? []
}

/** One line for each setting; a secret's line is a comment. */
function printedSettings(command: Command, { secrets }: SettingsRules, origins: Origins): string {
  const lines = settingsIn(command)
    .filter((option) => !option.hidden || !isOpen(command, option))
    .map((option) => printedLine(option, { command, secrets, origins }))
  const width = Math.min(60, Math.max(...lines.map(({ text }) => text.length)))
  return lines.map(({ text, origin }) => `${text.padEnd(width)}  # ${origin}\n`).join('')
}

interface PrintContext {
  readonly command: Command
  readonly secrets: readonly string[]
  readonly origins: Origins
}

function printedLine(option: Option, { command, secrets, origins }: PrintContext) {
  const key = option.attributeName()
  const value: unknown = command.getOptionValue(key)
  const origin = origins.get(key) ?? (isOpen(command, option) ? 'default' : 'command line')
  if (value === undefined) return { text: `# ${key}: not set`, origin: 'default' }
  if (secrets.includes(key) && isSecret(key, value)) return { text: `# ${key}: hidden`, origin }
  return { text: `${key}: ${yamlText(value)}`, origin: plainText(origin) }
}

function yamlText(value: unknown): string {
  return value instanceof URL ? JSON.stringify(value.href) : (JSON.stringify(value) ?? 'null')
}

/** Variables that look like a setting and are none: a typing error would pass unseen. */
function strangers(command: Command, env: NodeJS.ProcessEnv): string[] {
  const variables = settingsIn(command).map(variableOf)
  return Object.keys(env).flatMap((name) => {
    if (!name.startsWith(PREFIX) || [...variables, `${PREFIX}CONFIG`].includes(name)) return []
    const meant = nearest(
      name.slice(PREFIX.length),
      variables.map((one) => one.slice(PREFIX.length)),
    )
    return meant === undefined
      ? []
      : [`Warning: ${name} in the environment is no setting of this command; did you mean ${PREFIX}${meant}?`]
  })
}
