export function findStartProblem(environment: Readonly<Record<string, string | undefined>>): Promise<string | undefined>
