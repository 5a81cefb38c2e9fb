// What people call the numbers of a named dataset: columns, and the pieces of a text. Volunteers need none of it; a
// model that goes home does.
import {
  type ChatForm,
  type ColumnNames,
  type JobDataset,
  MAX_CLASS_NAMES,
  MAX_NAME_LENGTH,
  MAX_NORMALIZED,
} from '@starling-grid/protocol'
import type { Catalog } from './catalog.ts'

export interface DatasetWords extends ColumnNames {
  /** JSON of a tokenizer.json */
  readonly tokenizer?: string
  readonly chat?: ChatForm
}

/** Names that are too many for a header are left out; columns are then counted. */
export async function datasetWords(dataset: JobDataset, catalog: Catalog): Promise<DatasetWords> {
  if (!('name' in dataset)) return {}
  const { inputs, targets } = await catalog.get(dataset.name)
  const inputNames = fitting(inputs.inputNames, MAX_NORMALIZED)
  const targetNames = targets.kind === 'classes' ? undefined : fitting(targets.names, MAX_CLASS_NAMES)
  return {
    ...(inputNames === undefined ? {} : { inputNames }),
    ...(targetNames === undefined ? {} : { targetNames }),
    ...(targets.tokenizer === undefined ? {} : { tokenizer: targets.tokenizer }),
    ...(targets.chat === undefined ? {} : { chat: targets.chat }),
  }
}

function fitting(names: readonly string[] | undefined, max: number): string[] | undefined {
  const fit = names !== undefined && names.length <= max && names.every((name) => name.length <= MAX_NAME_LENGTH)
  return fit ? [...names] : undefined
}
