export declare const ROOT: string
/** Folders of the packages. */
export declare const PACKAGES: readonly string[]
/** Paths from the root, without what is installed, built or hidden. */
export declare function filesUnder(folder: string): string[]
