/**
 * How often pages read again what no stream tells, in milliseconds. TanStack Query pauses while the tab is hidden, and a replica
 * answers all consoles within a few seconds from one reading of the database.
 */
export const refresh = { soon: 5_000, later: 15_000, seldom: 60_000 } as const;
