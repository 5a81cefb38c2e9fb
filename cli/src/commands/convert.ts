// `convert`: a model file in the format of another program.
import { resolve } from 'node:path'
import { Command } from 'commander'
import { tell } from '../api/subcommand.ts'
import { convertModel, type ForeignFormat, formatOption, withEnding, writtenLines } from '../export-formats.ts'

interface ConvertFlags {
  readonly format: ForeignFormat
  readonly out?: string
  readonly json?: boolean
}

export async function convert(argv: string[]): Promise<number> {
  const program = new Command('starling convert')
    .description('Writes a model file of Starling in the format of another program.')
    .argument('<model>', 'safetensors file that `starling job export` or `starling train` wrote')
    .addOption(formatOption(['onnx', 'pytorch-script']))
    .option('--out <file>', 'where it is written (beside the model)')
    .option('--json', 'print one JSON value on the last line of stdout')
    .exitOverride()
    .parse(argv, { from: 'user' })
  const [model = ''] = program.args
  const flags = program.opts<ConvertFlags>()
  const file = resolve(flags.out ?? withEnding(model, flags.format))
  const written = await convertModel(model, { file, format: flags.format, name: model })
  tell(flags, written, writtenLines(written))
  return 0
}
