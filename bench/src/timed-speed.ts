/** Of a volunteer of the crowd, alone: timed-volunteer.ts takes so long, grouped-crowd.ts compares with it. */
export const SAMPLES_PER_SECOND = 500
