// What a visitor's device gives at most, kept for the next visit in this browser.

export interface VisitorLimits {
  /** of one job, in main memory and on the graphics processor together */
  readonly memoryBytes: number
  readonly uploadBytesPerHour: number
  /** of data that is kept for the next visit */
  readonly diskBytes: number
  /** other volunteers see no address of this device: its links go through the coordinator */
  readonly relaysOnly: boolean
}

/** Other tabs need memory, too; 8 GB an hour are 18 Mbit/s. */
export const DEFAULT_VISITOR_LIMITS: VisitorLimits = {
  memoryBytes: 4e9,
  uploadBytesPerHour: 8e9,
  diskBytes: 1e9,
  relaysOnly: false,
}

const STORAGE_KEY = 'starling-limits'

export function rememberedLimits(): VisitorLimits {
  const kept = read()
  const bytes = (name: Exclude<keyof VisitorLimits, 'relaysOnly'>): number => {
    const value = kept[name]
    return typeof value === 'number' && value >= 0 ? value : DEFAULT_VISITOR_LIMITS[name]
  }
  return {
    memoryBytes: bytes('memoryBytes'),
    uploadBytesPerHour: bytes('uploadBytesPerHour'),
    diskBytes: bytes('diskBytes'),
    relaysOnly: kept['relaysOnly'] === true,
  }
}

export function rememberLimits(limits: VisitorLimits): void {
  try {
    localStorage.setItem(STORAGE_KEY, JSON.stringify(limits))
  } catch {
    // Storage may be forbidden; the limits then last as long as the page.
  }
}

function read(): Readonly<Record<string, unknown>> {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(STORAGE_KEY) ?? '{}')
    return typeof kept === 'object' && kept !== null ? (kept as Readonly<Record<string, unknown>>) : {}
  } catch {
    return {}
  }
}
