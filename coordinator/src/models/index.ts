// Published language models by name, for the command line: import, list, show, delete; and their folders.
export { formOf, importModel, type PublishedForm, valuesOf } from './import-model.ts'
export { blobsOfModel, type ImportedModel, ModelCatalog } from './model-catalog.ts'
export { PublishedFolder, type TokenizerFiles } from './published-folder.ts'
