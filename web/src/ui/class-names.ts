/** Joins the class names that are not empty. */
export function classNames(...names: readonly (string | false | undefined | null)[]): string {
  return names.filter(Boolean).join(' ')
}
