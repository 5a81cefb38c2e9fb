// One import in a process of its own, or the parser library alone on the same files. Prints its time and its peak
// memory.
import { createReadStream } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Catalog, importNamed, type ImportRequest } from '@starling-grid/coordinator/datasets'
import Papa from 'papaparse'
import { PNG } from 'pngjs'

export interface ImportAnswer {
  readonly seconds: number
  /** bytes that the process held at most */
  readonly peak: number
  /** rows or images */
  readonly samples: number
}

const [what = '', path = '', dataDir = ''] = process.argv.slice(2)
const OPTIONS = { csv: { header: true }, images: { grey: false }, tokens: 'characters' } as const

async function imported(table: ImportRequest['options']['table']): Promise<number> {
  const request = { name: 'bench', paths: [path], validationShare: 0.1, seed: 1, options: { ...OPTIONS, table } }
  let read = 0
  await importNamed(request, new Catalog(dataDir), {
    now: () => new Date(0).toISOString(),
    onProgress: (_done, _total, samples) => {
      read = samples
    },
  })
  return read
}

/** Every cell as text, as the library gives it. */
function parsedRows(): Promise<number> {
  return new Promise((resolve, reject) => {
    let rows = -1 // the header
    Papa.parse<string[]>(createReadStream(path, 'utf8') as never, {
      delimiter: ',',
      newline: '\n',
      chunk: ({ data }: { readonly data: readonly unknown[] }) => {
        rows += data.length
      },
      complete: () => resolve(rows),
      error: reject,
    })
  })
}

async function decodedImages(): Promise<number> {
  let images = 0
  for (const folder of await readdir(path))
    for (const name of await readdir(join(path, folder))) {
      PNG.sync.read(await readFile(join(path, folder, name)))
      images++
    }
  return images
}

const TASKS: Readonly<Record<string, () => Promise<number>>> = {
  'import-csv': () => imported({ missing: 'error', target: { kind: 'classes', columns: ['kind'] } }),
  'import-images': () => imported({ missing: 'error' }),
  papaparse: parsedRows,
  pngjs: decodedImages,
}

const task = TASKS[what]
if (task === undefined) throw new Error(`internal: no task ${what}`)
const began = performance.now()
const samples = await task()
const seconds = (performance.now() - began) / 1000
const answer: ImportAnswer = { seconds, peak: process.resourceUsage().maxRSS * 1024, samples }
console.log(JSON.stringify(answer))
