// What volunteers of one owner keep beyond their end, in the owner's storage. No code.

/** A text of each volunteer of this owner; they outlive the volunteers. */
export interface KeptNotes {
  /** of the other volunteers, which run or have ended; hours later they may be forgotten */
  others(): Promise<readonly string[]>
  /** this volunteer's, instead of what it wrote before */
  write(text: string): Promise<void>
}
