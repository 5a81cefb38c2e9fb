// A volunteer's life: join → catch up → train → leave.
import type { VolunteerHost, VolunteerStatus } from './host.ts'

export interface VolunteerOptions {
  readonly name: string
  /** called after every change, at most some ten times a second */
  readonly onStatus: (status: VolunteerStatus) => void
}

export interface Volunteer {
  /** Resolves when the run is finished or stop() was called. @throws GridError when taking part is impossible */
  run(): Promise<void>
  /** Returns leases, tells the others, closes everything. */
  stop(): Promise<void>
}

export declare function createVolunteer(host: VolunteerHost, options: VolunteerOptions): Volunteer
