// Text ⇄ tokens of a model, and how a text goes on.
export { draws, nextToken } from './next-token.ts'
export { type TextTokens, textTokens } from './text-tokens.ts'
export { DEFAULT_TOKENS, type TextWriter, type WritingOptions, writtenText } from './write-text.ts'
