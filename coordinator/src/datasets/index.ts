// Datasets by name, for the command line: import, list, show, delete.
export { Catalog, type NamedDataset, shardsOf } from './catalog.ts'
export { readMnistFolder } from './mnist-folder.ts'
export { appendNamed, importNamed } from './import-named.ts'
export type { ImportRequest } from './import-request.ts'
export { FORMATS, type DatasetFormat, type ImportOptions } from './readers/open.ts'
export { type Preview, previewOf } from './preview.ts'
export { openRow, openUnlabelled, type UnlabelledOptions, type UnlabelledSource } from './unlabelled.ts'
export { jobsThatUse } from './uses.ts'
