// The name that a visitor goes by, kept for the next visit.
import { MAX_NAME_LENGTH } from '@starling-grid/protocol'

const STORAGE_KEY = 'starling-name'

export function rememberedName(): string {
  return read() ?? `Starling ${1000 + Math.floor(Math.random() * 9000)}`
}

export function rememberName(name: string): string {
  const tidy = name.trim().slice(0, MAX_NAME_LENGTH) || rememberedName()
  try {
    localStorage.setItem(STORAGE_KEY, tidy)
  } catch {
    // Storage may be forbidden; the name then lasts as long as the page.
  }
  return tidy
}

function read(): string | undefined {
  try {
    return localStorage.getItem(STORAGE_KEY) ?? undefined
  } catch {
    return undefined
  }
}
