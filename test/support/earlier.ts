/**
 * SQL that moves an instant back: `set ${earlier('changed_at', "interval '1 minute'")}`. In UTC, because Citus refuses what depends on
 * the session's time zone in an update of a column, and a plain `changed_at - interval` does.
 */
export function earlier(column: string, by: string): string {
  return `${column} = (${column} at time zone 'UTC' - ${by}) at time zone 'UTC'`
}
