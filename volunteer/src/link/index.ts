// What platforms build direct links from.
export { MAX_LINK_FRAME_BYTES } from './channel-link.ts'
export type { DoorHost, DoorKeeper } from './doors.ts'
export { takeMemory } from './frame-memory.ts'
export { MAX_GREETING_BYTES } from './greeting.ts'
export { LinkOpening, type LinkOpeningOptions } from './link-opening.ts'
