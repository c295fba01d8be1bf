/**
 * The fields of a form that differ from how it was opened. An edit sends only these: another window or a program may have changed the
 * others since, and saving must not revert a limit or a role.
 */
export function changedFields<Body extends object>(body: Body, opened: Partial<Body>): Partial<Body> {
  const isChanged = ([name, value]: [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(opened[name as keyof Body])
  return Object.fromEntries(Object.entries(body).filter(isChanged)) as Partial<Body>
}
