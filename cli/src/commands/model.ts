// `starling model import | list | show | delete`: published language models by name in a coordinator's data folder.
// Works beside a coordinator that runs on the same folder, and without one.
import { blobsOfModel, type ImportedModel, importModel, ModelCatalog } from '@starling-grid/coordinator/models'
import { type Storage, STORAGES } from '@starling-grid/model'
import { plainText } from '@starling-grid/protocol'
import { Command, Option } from 'commander'
import { deleteImport, type FolderFlags, printJson, withFolder } from '../named-imports.ts'
import { duration, ProgressLine } from '../terminal/progress-line.ts'

const MILLION = 1e6

export async function model(argv: readonly string[]): Promise<number> {
  const program = new Command('starling model')
    .description('Published language models by name. A job tunes one with "model": {"base": NAME, "context": N}.')
    .exitOverride()
  withFolder(program.command('import'))
    .description('Reads a folder as Hugging Face publishes models: config.json, model*.safetensors, tokenizer.json.')
    .argument('<name>', 'small letters, digits, dots and dashes')
    .argument('<folder>', 'with config.json')
    .addOption(
      new Option('--store <how>', 'numbers of the model; volunteers fetch them so')
        .choices(STORAGES)
        .default('f16' satisfies Storage),
    )
    .action(importInto)
  withFolder(program.command('list').description('all models')).action(list)
  withFolder(program.command('show').description('what a model is').argument('<name>')).action(show)
  withFolder(
    program.command('delete').description('frees its disk; refused while a job tunes it').argument('<name>'),
  ).action(remove)
  await program.parseAsync([...argv], { from: 'user' })
  return 0
}

async function importInto(
  name: string,
  folder: string,
  { dataDir, json, store }: FolderFlags & { readonly store: Storage },
): Promise<void> {
  const line = new ProgressLine()
  const began = performance.now()
  const imported = await importModel({ name, folder, storage: store }, new ModelCatalog(dataDir), {
    now: () => new Date().toISOString(),
    onProgress: (done, total) => line.show(`${millions(done)} of ${millions(total)} M parameters`),
  })
  line.say(`imported ${name} in ${duration((performance.now() - began) / 1000)}: ${described(imported)}`)
  if (json === true) printJson(summary(imported))
}

async function list({ dataDir, json }: FolderFlags): Promise<void> {
  const catalog = new ModelCatalog(dataDir)
  const models = await Promise.all((await catalog.names()).map((name) => catalog.get(name)))
  if (json === true) return printJson(models.map(summary))
  if (models.length === 0) console.log(`No models in ${dataDir}. Import one with: starling model import NAME FOLDER`)
  const width = Math.max(...models.map(({ name }) => name.length))
  for (const found of models) console.log(`${found.name.padEnd(width)}  ${described(found)}`)
}

async function show(name: string, { dataDir, json }: FolderFlags): Promise<void> {
  const found = await new ModelCatalog(dataDir).get(name)
  if (json === true) return printJson(summary(found))
  console.log(`${name}: ${described(found)}`)
  console.log(`  from ${plainText(found.folder)}, ${found.importedAt}`)
  for (const [key, value] of Object.entries(found.config)) console.log(`  ${key}: ${plainText(JSON.stringify(value))}`)
}

async function remove(name: string, flags: FolderFlags): Promise<void> {
  const catalog = new ModelCatalog(flags.dataDir)
  const blobs = blobsOfModel(await catalog.get(name))
  await deleteImport({ name, free: 'model that no job tunes', blobs, catalog }, flags)
}

function summary({ name, importedAt, folder, config, parameters, storage, shards, ...words }: ImportedModel): object {
  const { tokenizer, chatTemplate, ends } = words
  return {
    name,
    importedAt,
    folder,
    config,
    parameters,
    storage,
    shards: shards.length,
    bytes: bytesOf(shards),
    tokenizer: tokenizer !== undefined,
    chatTemplate: chatTemplate !== undefined,
    ends,
  }
}

function described({ config, parameters, storage, shards, tokenizer, chatTemplate }: ImportedModel): string {
  const text = tokenizer === undefined ? 'no tokenizer' : 'its tokenizer'
  const chat = chatTemplate === undefined ? '' : ' and a chat template'
  return (
    `${config.model_type}, ${millions(parameters)} M parameters as ${storage} in ${shards.length} shards ` +
    `(${(bytesOf(shards) / MILLION).toFixed(1)} MB), ${text}${chat}`
  )
}

function bytesOf(shards: ImportedModel['shards']): number {
  return shards.reduce((sum, { bytes }) => sum + bytes, 0)
}

function millions(count: number): string {
  return (count / MILLION).toFixed(count < 10 * MILLION ? 2 : 0)
}
